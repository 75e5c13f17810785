#include <cmath>
#include <vector>

#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

float mean_of(const View& x, int64_t row, int64_t first, int64_t size) {
  Chunk buffer;
  double sum = 0;
  for_chunks(size, [&](int64_t begin, int64_t count) {
    const float* values = read(x, row, first + begin, count, buffer.data());
    sum += sum_of(count, [&](int64_t i) { return static_cast<double>(values[i]); });
  });
  return static_cast<float>(sum / static_cast<double>(size));
}

// (rows * groups), or nullptr where none is subtracted. The next call overwrites them.
const float* means_of(const Context& context, const RmsNormBackward& args, int64_t size) {
  if (!args.centred) return nullptr;
  thread_local std::vector<float> storage;
  float* means = grown(storage, args.x.rows * args.groups);
  for_rows(context.team, args.x.rows * args.groups, size, [&](int64_t index) {
    means[index] = mean_of(args.x, index / args.groups, index % args.groups * size, size);
  });
  return means;
}

// grad_weight[c] = sum over rows and groups of grad_out * x * inv_rms. Each block of columns has one owner.
void weight_gradient(const Context& context, const RmsNormBackward& args, const float* means) {
  constexpr int64_t kColumns = 32;
  const int64_t size = args.weight.cols;
  context.team.parallel_for(ceil_div(size, kColumns), [&](int64_t block) {
    const int64_t begin = block * kColumns;
    const int64_t count = std::min(kColumns, size - begin);
    float x_buffer[kColumns], g_buffer[kColumns];
    double sum[kColumns] = {};
    for (int64_t row = 0; row < args.x.rows; ++row) {
      for (int64_t group = 0; group < args.groups; ++group) {
        const float* x = read(args.x, row, group * size + begin, count, x_buffer);
        const float* g = read(args.grad_out, row, group * size + begin, count, g_buffer);
        const float inv_rms = args.inv_rms[row * args.groups + group];
        const float mean = means ? means[row * args.groups + group] : 0.0f;
        for (int64_t c = 0; c < count; ++c) sum[c] += static_cast<double>(g[c]) * ((x[c] - mean) * inv_rms);
      }
    }
    float* grad_weight = args.grad_weight.as<float>() + begin;
    for (int64_t c = 0; c < count; ++c) {
      grad_weight[c] = static_cast<float>(args.accumulate ? grad_weight[c] + sum[c] : sum[c]);
    }
  });
}

// weight[begin, begin + count) plus the offset, in fp32; ones without a weight.
const float* read_weight(const View& weight, float offset, int64_t begin, int64_t count, float* scratch) {
  if (weight.empty()) {
    std::fill(scratch, scratch + count, 1.0f);
    return scratch;
  }
  const float* stored = read(weight, 0, begin, count, scratch);
  if (offset == 0) return stored;
  for (int64_t i = 0; i < count; ++i) scratch[i] = offset + stored[i];
  return scratch;
}

// The elements of one group of a row.
template <class Args>
int64_t vector_size(const Args& args) {
  const int64_t size = args.weight.empty() ? args.x.cols / args.groups : args.weight.cols;
  ensure(args.x.cols == args.groups * size, "a row of RMSNorm holds `groups` vectors of the weight's size");
  if (!args.weight.empty()) check_dtype(args.weight);
  return size;
}

}  // namespace

void rmsnorm_forward(const Context& context, const RmsNormForward& args) {
  check_dtype(args.x);
  check_dtype(args.out);
  const int64_t size = vector_size(args);
  for_rows(context.team, args.x.rows * args.groups, size, [&](int64_t index) {
    const int64_t row = index / args.groups;
    const int64_t first = index % args.groups * size;
    Chunk x_buffer, w_buffer, r_buffer, out;
    const float mean = args.centred ? mean_of(args.x, row, first, size) : 0.0f;
    double squares = 0;
    for_chunks(size, [&](int64_t begin, int64_t count) {
      const float* x = read(args.x, row, first + begin, count, x_buffer.data());
      squares += sum_of(count, [&](int64_t i) { return static_cast<double>(x[i] - mean) * (x[i] - mean); });
    });
    const double square = squares / static_cast<double>(size);
    const float inv_rms = static_cast<float>(1.0 / std::sqrt(square + static_cast<double>(args.eps)));
    args.inv_rms[index] = inv_rms;
    for_chunks(size, [&](int64_t begin, int64_t count) {
      const float* x = read(args.x, row, first + begin, count, x_buffer.data());
      const float* w = read_weight(args.weight, args.weight_offset, begin, count, w_buffer.data());
      for (int64_t i = 0; i < count; ++i) out[i] = (x[i] - mean) * inv_rms * w[i];
      if (!args.residual.empty()) {
        const float* residual = read(args.residual, row, first + begin, count, r_buffer.data());
        for (int64_t i = 0; i < count; ++i) out[i] += residual[i];
      }
      narrow(out.data(), args.out, row, first + begin, count);
    });
  });
}

// With r = inv_rms and g = grad_out * (offset + weight): d = r g - x r^3 mean(g x). Centred, x is without its mean, and
// so is g.
void rmsnorm_backward(const Context& context, const RmsNormBackward& args) {
  check_dtype(args.x);
  check_dtype(args.grad_out);
  check_dtype(args.grad_x);
  const int64_t size = vector_size(args);
  const float* means = means_of(context, args, size);
  if (!args.grad_weight.empty()) weight_gradient(context, args, means);  // first, as grad_x may overwrite grad_out
  for_rows(context.team, args.x.rows * args.groups, size, [&](int64_t index) {
    const int64_t row = index / args.groups;
    const int64_t first = index % args.groups * size;
    Chunk x_buffer, w_buffer, g_buffer, r_buffer, out;
    const float mean = means ? means[index] : 0.0f;
    double matmul = 0, total = 0;
    for_chunks(size, [&](int64_t begin, int64_t count) {
      const float* x = read(args.x, row, first + begin, count, x_buffer.data());
      const float* w = read_weight(args.weight, args.weight_offset, begin, count, w_buffer.data());
      const float* g = read(args.grad_out, row, first + begin, count, g_buffer.data());
      matmul += sum_of(count, [&](int64_t i) { return static_cast<double>(g[i] * w[i]) * (x[i] - mean); });
      if (args.centred) total += sum_of(count, [&](int64_t i) { return static_cast<double>(g[i] * w[i]); });
    });
    const double r = args.inv_rms[index];
    const float inv_rms = args.inv_rms[index];
    const float level = static_cast<float>(r * total / static_cast<double>(size));
    const float along = static_cast<float>(r * r * r * matmul / static_cast<double>(size));
    for_chunks(size, [&](int64_t begin, int64_t count) {
      const float* x = read(args.x, row, first + begin, count, x_buffer.data());
      const float* w = read_weight(args.weight, args.weight_offset, begin, count, w_buffer.data());
      const float* g = read(args.grad_out, row, first + begin, count, g_buffer.data());
      for (int64_t i = 0; i < count; ++i) out[i] = g[i] * w[i] * inv_rms - (x[i] - mean) * along - level;
      if (!args.residual.empty()) {
        const float* residual = read(args.residual, row, first + begin, count, r_buffer.data());
        for (int64_t i = 0; i < count; ++i) out[i] += residual[i];
      }
      narrow(out.data(), args.grad_x, row, first + begin, count);
    });
  });
}

}  // namespace megatrain::cpu
