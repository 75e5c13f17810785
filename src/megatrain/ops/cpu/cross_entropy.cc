#include "megatrain/ops/cross_entropy.h"

#include <cmath>

#include "megatrain/ops/cpu/exp.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

// Logits as the loss sees them.
const float* read_capped(const View& logits, float cap, int64_t row, int64_t begin, int64_t count, float* buffer) {
  const float* x = read(logits, row, begin, count, buffer);
  if (cap == 0) return x;
  for (int64_t i = 0; i < count; ++i) buffer[i] = cap * std::tanh(x[i] / cap);
  return buffer;
}

// d(cap * tanh(x / cap)) / dx, given y = cap * tanh(x / cap).
float cap_slope(float y, float cap) { return cap == 0 ? 1.0f : 1.0f - (y / cap) * (y / cap); }

struct RowMaximum {
  float value;
  int64_t first;  // column of its first occurrence
};

RowMaximum row_maximum(const View& logits, float cap, int64_t row) {
  Chunk buffer;
  RowMaximum best{};
  for_chunks(logits.cols, [&](int64_t begin, int64_t count) {
    const float* x = read_capped(logits, cap, row, begin, count, buffer.data());
    const float value = largest_of(x, count);
    if (begin > 0 && !(value > best.value)) return;
    int64_t at = 0;
    while (at + 1 < count && x[at] != value) ++at;
    best = {value, begin + at};
  });
  return best;
}

}  // namespace

void cross_entropy(const Context& context, const CrossEntropy& args) {
  const View& logits = args.logits;
  check_dtype(logits);
  for_rows(context.team, logits.rows, logits.cols, [&](int64_t row) {
    Chunk buffer, grad;
    const int32_t label = args.labels[row];
    if (label == kIgnoreLabel) {
      args.loss[row] = 0;
      args.correct[row] = 0;
      if (!args.backward) return;
      grad.fill(0);
      for_chunks(logits.cols, [&](int64_t begin, int64_t count) { narrow(grad.data(), logits, row, begin, count); });
      return;
    }
    const RowMaximum maximum = row_maximum(logits, args.cap, row);
    double sum = 0;
    for_chunks(logits.cols, [&](int64_t begin, int64_t count) {
      const float* x = read_capped(logits, args.cap, row, begin, count, buffer.data());
      for (int64_t i = 0; i < count; ++i) grad[i] = exp_f32(x[i] - maximum.value);
      sum += sum_of(count, [&](int64_t i) { return static_cast<double>(grad[i]); });
    });
    const float target = *read_capped(logits, args.cap, row, label, 1, buffer.data());
    const double below = static_cast<double>(target) - maximum.value;
    args.loss[row] = static_cast<float>(std::log(sum) - below);
    args.correct[row] = maximum.first == label;
    if (!args.backward) return;
    const double scale = static_cast<double>(args.scale) * (args.token_scales ? args.token_scales[row] : 1.0f);
    const float factor = static_cast<float>(scale / sum);
    const float label_grad = static_cast<float>((std::exp(below) / sum - 1.0) * scale);
    for_chunks(logits.cols, [&](int64_t begin, int64_t count) {
      const float* x = read_capped(logits, args.cap, row, begin, count, buffer.data());
      for (int64_t i = 0; i < count; ++i) grad[i] = exp_f32(x[i] - maximum.value) * factor * cap_slope(x[i], args.cap);
      if (label >= begin && label < begin + count) grad[label - begin] = label_grad * cap_slope(target, args.cap);
      narrow(grad.data(), logits, row, begin, count);
    });
  });
}

void cap_logits(const Context& context, const CapLogits& args) {
  ensure(args.logits.dtype == DType::f32 && args.cap > 0, "a cap is positive and applies to fp32 logits");
  for_rows(context.team, args.logits.rows, args.logits.cols, [&](int64_t row) {
    Chunk buffer;
    for_chunks(args.logits.cols, [&](int64_t begin, int64_t count) {
      const float* capped = read_capped(args.logits, args.cap, row, begin, count, buffer.data());
      narrow(capped, args.logits, row, begin, count);
    });
  });
}

}  // namespace megatrain::cpu
