#include "megatrain/ops/short_conv.h"

#include <cmath>

#include "megatrain/ops/cpu/exp.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

constexpr int64_t kConvColumns = 32;
constexpr int64_t kConvRows = 256;

// The weights of columns [begin, begin + count) by tap, and their biases.
struct ConvTaps {
  ConvTaps(const View& weight, const View& of_bias, int64_t begin, int64_t count) : taps(weight.cols) {
    if (!of_bias.empty()) widen(of_bias, 0, begin, count, bias);
    float buffer[kMostConvTaps];
    for (int64_t c = 0; c < count; ++c) {
      const float* row = read(weight, begin + c, 0, taps, buffer);
      for (int64_t i = 0; i < taps; ++i) weight_of[i][c] = row[i];
    }
  }
  int64_t taps;
  // The sum of no tap yet.
  void start(int64_t count, float* sum) const { std::copy_n(bias, count, sum); }

  float weight_of[kMostConvTaps][kConvColumns];
  float bias[kConvColumns] = {};
};

// Adds weight * input for columns of one tap.
void add_tap(const float* weight, const float* input, int64_t count, float* sum) {
  for (int64_t c = 0; c < count; ++c) sum[c] += weight[c] * input[c];
}

void silu_of(float* values, int64_t count) {
  for (int64_t c = 0; c < count; ++c) values[c] = values[c] / (1.0f + exp_f32(-values[c]));
}

void check_conv(const View& x, const View& weight, const View& bias) {
  check_dtype(x);
  check_dtype(weight);
  if (!bias.empty()) check_dtype(bias);
  ensure(bias.empty() || bias.cols == x.cols, "a short convolution has one bias for each channel");
  ensure(weight.cols >= 2 && weight.cols <= kMostConvTaps, "a short convolution has between 2 and 4 taps");
  ensure(weight.rows == x.cols, "a short convolution has one row of weights for each channel");
}

// Columns [begin, begin + count) of one document, and its gradients.
class ConvColumns {
 public:
  ConvColumns(const ShortConvBackward& args, int64_t begin, int64_t count)
      : args_(args), begin_(begin), count_(count), taps_(args.weight, args.bias, begin, count) {}

  // Rows [first, end) of the document [document_begin, document_end). Adds to the weights' sums.
  void backward(int64_t document_begin, int64_t document_end, int64_t first, int64_t end) {
    const int64_t last = std::min(document_end, end + taps_.taps - 1);
    for (int64_t t = first; t < last; ++t) {
      float* slope = slopes_[t - first];
      slope_of(t, document_begin, slope);
      if (t < end) add_weights(t, document_begin, slope);
    }
    for (int64_t t = first; t < end; ++t) {
      float sum[kConvColumns] = {};
      for (int64_t i = 0; i < taps_.taps; ++i) {
        const int64_t reader = t + taps_.taps - 1 - i;
        if (reader < last) add_tap(taps_.weight_of[i], slopes_[reader - first], count_, sum);
      }
      narrow(sum, args_.grad_x, t, begin_, count_);
    }
  }

  void write_weights() const {
    for (int64_t c = 0; c < count_ && !args_.grad_bias.empty(); ++c) {
      float& grad = args_.grad_bias.as<float>()[begin_ + c];
      grad = static_cast<float>(args_.accumulate ? grad + bias_sums_[c] : bias_sums_[c]);
    }
    for (int64_t c = 0; c < count_ && !args_.grad_weight.empty(); ++c) {
      float* grad = args_.grad_weight.as<float>() + (begin_ + c) * args_.grad_weight.row_stride;
      for (int64_t i = 0; i < taps_.taps; ++i)
        grad[i] = static_cast<float>(args_.accumulate ? grad[i] + sums_[i][c] : sums_[i][c]);
    }
  }

 private:
  // The gradient of the convolution's sum, before SiLU.
  void slope_of(int64_t t, int64_t document_begin, float* slope) const {
    float x_buffer[kConvColumns], g_buffer[kConvColumns], sum[kConvColumns];
    if (!args_.silu) return widen(args_.grad_out, t, begin_, count_, slope);
    taps_.start(count_, sum);
    for (int64_t i = 0; i < taps_.taps; ++i) {
      const int64_t from = t - (taps_.taps - 1) + i;
      if (from >= document_begin)
        add_tap(taps_.weight_of[i], read(args_.x, from, begin_, count_, x_buffer), count_, sum);
    }
    const float* grad = read(args_.grad_out, t, begin_, count_, g_buffer);
    for (int64_t c = 0; c < count_; ++c) {
      const float e = exp_f32(-sum[c]), s = 1.0f / (1.0f + e);
      slope[c] = grad[c] * s * (1.0f + sum[c] * (e * s));
    }
  }
  void add_weights(int64_t t, int64_t document_begin, const float* slope) {
    float x_buffer[kConvColumns];
    for (int64_t c = 0; c < count_; ++c) bias_sums_[c] += slope[c];
    for (int64_t i = 0; i < taps_.taps; ++i) {
      const int64_t from = t - (taps_.taps - 1) + i;
      if (from < document_begin) continue;
      const float* x = read(args_.x, from, begin_, count_, x_buffer);
      for (int64_t c = 0; c < count_; ++c) sums_[i][c] += static_cast<double>(slope[c]) * x[c];
    }
  }

  const ShortConvBackward& args_;
  int64_t begin_, count_;
  ConvTaps taps_;
  double sums_[kMostConvTaps][kConvColumns] = {};
  double bias_sums_[kConvColumns] = {};
  float slopes_[kConvRows + kMostConvTaps][kConvColumns];
};

}  // namespace

void short_conv_forward(const Context& context, const ShortConvForward& args) {
  check_conv(args.x, args.weight, args.bias);
  check_dtype(args.out);
  const int64_t columns = args.x.cols;
  context.team.parallel_for(ceil_div(columns, kConvColumns), [&](int64_t block) {
    const int64_t begin = block * kConvColumns, count = std::min(kConvColumns, columns - begin);
    const ConvTaps taps(args.weight, args.bias, begin, count);
    for (int64_t d = 0; d < args.documents.count; ++d) {
      for (int64_t t = args.documents.begin[d]; t < args.documents.begin[d + 1]; ++t) {
        float x_buffer[kConvColumns], sum[kConvColumns];
        taps.start(count, sum);
        for (int64_t i = 0; i < taps.taps; ++i) {
          const int64_t from = t - (taps.taps - 1) + i;
          if (from >= args.documents.begin[d])
            add_tap(taps.weight_of[i], read(args.x, from, begin, count, x_buffer), count, sum);
        }
        if (args.silu) silu_of(sum, count);
        narrow(sum, args.out, t, begin, count);
      }
    }
  });
}

void short_conv_backward(const Context& context, const ShortConvBackward& args) {
  check_conv(args.x, args.weight, args.bias);
  check_dtype(args.grad_out);
  check_dtype(args.grad_x);
  const int64_t columns = args.x.cols;
  context.team.parallel_for(ceil_div(columns, kConvColumns), [&](int64_t block) {
    const int64_t begin = block * kConvColumns, count = std::min(kConvColumns, columns - begin);
    ConvColumns part(args, begin, count);
    for (int64_t d = 0; d < args.documents.count; ++d) {
      const int64_t first = args.documents.begin[d], end = args.documents.begin[d + 1];
      for (int64_t t = first; t < end; t += kConvRows) part.backward(first, end, t, std::min(end, t + kConvRows));
    }
    part.write_weights();
  });
}

void short_conv_cached(const Context& context, const ShortConvCached& args) {
  check_conv(args.x, args.weight, args.bias);
  check_dtype(args.out);
  ensure(args.window.dtype == args.x.dtype, "a window has its tokens' dtype");
  const int64_t columns = args.x.cols, kept = args.weight.cols - 1;
  context.team.parallel_for(ceil_div(columns, kConvColumns), [&](int64_t block) {
    const int64_t begin = block * kConvColumns, count = std::min(kConvColumns, columns - begin);
    const ConvTaps taps(args.weight, args.bias, begin, count);
    for (int64_t t = 0; t < args.x.rows; ++t) {
      const View window = args.window.slice_rows(args.sequences[t] * kept, kept);
      float past[kMostConvTaps][kConvColumns] = {}, sum[kConvColumns];
      taps.start(count, sum);
      for (int64_t i = 0; i < kept; ++i) {
        if (args.positions[t] >= kept - i) widen(window, i, begin, count, past[i]);
      }
      widen(args.x, t, begin, count, past[kept]);
      for (int64_t i = 0; i < taps.taps; ++i) add_tap(taps.weight_of[i], past[i], count, sum);
      for (int64_t i = 0; i < kept; ++i) narrow(past[i + 1], window, i, begin, count);
      if (args.silu) silu_of(sum, count);
      narrow(sum, args.out, t, begin, count);
    }
  });
}

}  // namespace megatrain::cpu
