// A thread owns kVec channels and walks over a range of tokens with the last inputs in registers. Ranges depend only on
// the number of tokens, so the weights' gradient, one partial sum for each range, is a sum over a fixed tree.
#include "megatrain/ops/cuda/attention/documents.cuh"
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kThreads = 128;
constexpr int64_t kForwardTokens = 32;
constexpr int64_t kLeastTokens = 64;  // of a partial sum
constexpr int64_t kMostPartials = 256;

struct ConvRows {
  void* data;
  int64_t stride;

  template <class T>
  __device__ T* at(int64_t row, int64_t column) const {
    return static_cast<T*>(data) + row * stride + column;
  }
};

ConvRows conv_rows(const View& view) { return {view.data, view.row_stride}; }

// The weights of channels [column, column + kVec), by tap.
template <class W, int kTaps, int kVec>
__device__ void load_taps(const W* weight, int64_t column, float (&taps)[kTaps][kVec]) {
#pragma unroll
  for (int j = 0; j < kVec; ++j) {
#pragma unroll
    for (int i = 0; i < kTaps; ++i) taps[i][j] = widen(weight[(column + j) * kTaps + i]);
  }
}

// The biases of the same channels; without any, zeros.
template <class W, int kVec>
__device__ void load_bias(const W* bias, int64_t column, float (&values)[kVec]) {
#pragma unroll
  for (int j = 0; j < kVec; ++j) values[j] = bias ? widen(bias[column + j]) : 0.0f;
}

template <int kTaps, int kVec>
__device__ void clear(float (&values)[kTaps][kVec]) {
#pragma unroll
  for (int i = 0; i < kTaps; ++i) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) values[i][j] = 0;
  }
}

// Drops the oldest of the last kTaps values.
template <int kTaps, int kVec>
__device__ void slide(float (&values)[kTaps][kVec]) {
#pragma unroll
  for (int i = 0; i + 1 < kTaps; ++i) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) values[i][j] = values[i + 1][j];
  }
}

// The inputs before `token` that are in its document, as if `token` were about to be loaded.
template <class T, int kTaps, int kVec>
__device__ void load_past(const ConvRows& x, int64_t token, int64_t begin, int64_t column, float (&past)[kTaps][kVec]) {
  clear(past);
#pragma unroll
  for (int i = 1; i < kTaps; ++i) {
    const int64_t from = token - kTaps + i;
    if (from >= begin) load<T, kVec>(x.at<const T>(from, column), past[i]);
  }
}

template <int kTaps, int kVec>
__device__ void convolve(const float (&taps)[kTaps][kVec], const float (&bias)[kVec],
                         const float (&inputs)[kTaps][kVec], float (&sum)[kVec]) {
#pragma unroll
  for (int j = 0; j < kVec; ++j) sum[j] = bias[j];
#pragma unroll
  for (int i = 0; i < kTaps; ++i) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) sum[j] += taps[i][j] * inputs[i][j];
  }
}

__device__ float silu(float x) { return x / (1.0f + expf(-x)); }

// grid (column blocks, ranges of kForwardTokens)
template <class T, class W, int kTaps, int kVec>
__global__ void conv_forward_kernel(Documents documents, int64_t tokens, int64_t columns, ConvRows x, const W* weight,
                                    const W* bias, ConvRows out, bool activated) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVec;
  if (column >= columns) return;
  const int64_t first = blockIdx.y * kForwardTokens;
  const int64_t end = first + kForwardTokens < tokens ? first + kForwardTokens : tokens;
  float taps[kTaps][kVec], biases[kVec], inputs[kTaps][kVec], sum[kVec];
  load_taps<W, kTaps, kVec>(weight, column, taps);
  load_bias<W, kVec>(bias, column, biases);
  DocumentSpan document = document_of(documents, first);
  load_past<T, kTaps, kVec>(x, first, document.begin, column, inputs);
  for (int64_t t = first; t < end; ++t) {
    if (t == document.end) {
      document = document_of(documents, t);
      clear(inputs);
    }
    slide(inputs);
    load<T, kVec>(x.at<const T>(t, column), inputs[kTaps - 1]);
    convolve(taps, biases, inputs, sum);
#pragma unroll
    for (int j = 0; j < kVec && activated; ++j) sum[j] = silu(sum[j]);
    store<T, kVec>(out.at<T>(t, column), sum);
  }
}

// grid (column blocks, ranges of `range` tokens). partials[blockIdx.y][column * kTaps + i] is the range's part of the
// weights' gradient, and bias_partials[blockIdx.y][column] of the biases'. The walk ends kTaps - 1 tokens behind the
// range, because these read the range's last inputs.
template <class T, class W, int kTaps, int kVec>
__global__ void conv_backward_kernel(Documents documents, int64_t tokens, int64_t columns, int64_t range, ConvRows x,
                                     const W* weight, const W* bias, ConvRows grad_out, ConvRows grad_x,
                                     float* partials, float* bias_partials, bool activated) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVec;
  if (column >= columns) return;
  const int64_t first = blockIdx.y * range, end = first + range < tokens ? first + range : tokens;
  float taps[kTaps][kVec], inputs[kTaps][kVec], slopes[kTaps][kVec], sums[kTaps][kVec];
  float biases[kVec], bias_sums[kVec] = {};
  int64_t ends[kTaps];  // of the documents of the last tokens, whose slopes are in `slopes`
  load_taps<W, kTaps, kVec>(weight, column, taps);
  load_bias<W, kVec>(bias, column, biases);
  clear(slopes);
  clear(sums);
#pragma unroll
  for (int i = 0; i < kTaps; ++i) ends[i] = 0;
  DocumentSpan document = document_of(documents, first);
  load_past<T, kTaps, kVec>(x, first, document.begin, column, inputs);
  for (int64_t t = first; t < end + kTaps - 1; ++t) {
    if (t == document.end && t < tokens) {
      document = document_of(documents, t);
      clear(inputs);
    }
    slide(inputs);
    slide(slopes);
#pragma unroll
    for (int i = 0; i + 1 < kTaps; ++i) ends[i] = ends[i + 1];
    ends[kTaps - 1] = document.end;
    float(&slope)[kVec] = slopes[kTaps - 1];
#pragma unroll
    for (int j = 0; j < kVec; ++j) slope[j] = 0;
    if (t < tokens) {
      float sum[kVec], grad[kVec];
      load<T, kVec>(x.at<const T>(t, column), inputs[kTaps - 1]);
      load<T, kVec>(grad_out.at<const T>(t, column), grad);
      convolve(taps, biases, inputs, sum);
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        const float e = expf(-sum[j]), s = 1.0f / (1.0f + e);
        slope[j] = activated ? grad[j] * (s + silu(sum[j]) * (1.0f - s)) : grad[j];
      }
    }
    if (t < end) {
#pragma unroll
      for (int j = 0; j < kVec; ++j) bias_sums[j] += slope[j];
#pragma unroll
      for (int i = 0; i < kTaps; ++i) {
#pragma unroll
        for (int j = 0; j < kVec; ++j) sums[i][j] += slope[j] * inputs[i][j];
      }
    }
    const int64_t done = t - (kTaps - 1);  // the token whose readers' slopes are all in `slopes`
    if (done < first) continue;
    float grad[kVec] = {};
#pragma unroll
    for (int behind = kTaps - 1; behind >= 0; --behind) {
      if (done + behind >= ends[0]) continue;
#pragma unroll
      for (int j = 0; j < kVec; ++j) grad[j] += taps[kTaps - 1 - behind][j] * slopes[behind][j];
    }
    store<T, kVec>(grad_x.at<T>(done, column), grad);
  }
#pragma unroll
  for (int j = 0; j < kVec && bias_partials; ++j) bias_partials[blockIdx.y * columns + column + j] = bias_sums[j];
  if (!partials) return;
  float* partial = partials + blockIdx.y * columns * kTaps + column * kTaps;
#pragma unroll
  for (int j = 0; j < kVec; ++j) {
#pragma unroll
    for (int i = 0; i < kTaps; ++i) partial[j * kTaps + i] = sums[i][j];
  }
}

// The input `back` tokens before new token `token`, from this call or from the window; 0 before the document.
template <class T, int kTaps>
__device__ float earlier_input(const int32_t* sequences, const int32_t* positions, const ConvRows& x,
                               const ConvRows& window, int64_t token, int back, int64_t column) {
  if (positions[token] < back) return 0;
  int within = 0;  // new tokens of the sequence before this one, at most `back`
  while (within < back && token > within && sequences[token - within - 1] == sequences[token]) ++within;
  if (within == back) return widen(*x.at<const T>(token - back, column));
  const int64_t row = static_cast<int64_t>(sequences[token]) * (kTaps - 1) + kTaps - 1 - back + within;
  return widen(*window.at<const T>(row, column));
}

// grid (column blocks, tokens)
template <class T, class W, int kTaps>
__global__ void conv_cached_kernel(int64_t columns, const int32_t* sequences, const int32_t* positions, ConvRows x,
                                   const W* weight, const W* bias, ConvRows window, ConvRows out, bool activated) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, token = blockIdx.y;
  if (column >= columns) return;
  float sum = bias ? widen(bias[column]) : 0.0f;
#pragma unroll
  for (int i = 0; i < kTaps; ++i) {
    sum += widen(weight[column * kTaps + i]) *
           earlier_input<T, kTaps>(sequences, positions, x, window, token, kTaps - 1 - i, column);
  }
  *out.at<T>(token, column) = narrow<T>(activated ? silu(sum) : sum);
}

// grid (column blocks, tokens): the last new token of each sequence replaces its window. A row is read before it is
// overwritten, because older inputs move to lower rows.
template <class T, int kTaps>
__global__ void conv_window_kernel(int64_t tokens, int64_t columns, const int32_t* sequences, const int32_t* positions,
                                   ConvRows x, ConvRows window) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, token = blockIdx.y;
  if (column >= columns || (token + 1 < tokens && sequences[token + 1] == sequences[token])) return;
#pragma unroll
  for (int i = 0; i < kTaps - 1; ++i) {
    const float value = earlier_input<T, kTaps>(sequences, positions, x, window, token, kTaps - 2 - i, column);
    *window.at<T>(static_cast<int64_t>(sequences[token]) * (kTaps - 1) + i, column) = narrow<T>(value);
  }
}

// Calls body with values of the element types and the number of taps.
template <class Body>
void visit_conv(const View& x, const View& weight, const View& bias, const Body& body) {
  ensure(bias.empty() || (bias.cols == x.cols && bias.dtype == weight.dtype),
         "a short convolution has one bias for each channel, of the weights' dtype");
  ensure(weight.rows == x.cols && weight.contiguous(), "a short convolution has one row of weights for each channel");
  visit_elements(x.dtype, [&](auto element) {
    visit_elements(weight.dtype, [&](auto of_weight) {
      using T = decltype(element);
      using W = decltype(of_weight);
      switch (weight.cols) {
        case 2: return body.template operator()<T, W, 2>();
        case 3: return body.template operator()<T, W, 3>();
        case 4: return body.template operator()<T, W, 4>();
        default: fail_internal("a short convolution has between 2 and 4 taps");
      }
    });
  });
}

template <class W>
const W* bias_of(const View& bias) {
  return bias.empty() ? nullptr : bias.as<W>();
}

int64_t conv_range(int64_t tokens) {
  const int64_t least = ceil_div(tokens, kMostPartials);
  return least < kLeastTokens ? kLeastTokens : least;
}

dim3 conv_grid(int64_t columns, int vec, int64_t rows) {
  ensure(rows < 65536, "a short convolution has less than 65536 rows of blocks");
  return dim3(grid_size(ceil_div(columns, int64_t{vec} * kThreads)), static_cast<unsigned>(rows));
}

}  // namespace

void launch(const ShortConvForward& args, cudaStream_t stream) {
  if (args.x.rows == 0) return;
  ensure(args.out.dtype == args.x.dtype, "a short convolution's tensors share a dtype");
  visit_conv(args.x, args.weight, args.bias, [&]<class T, class W, int kTaps>() {
    // a grid has at most 65535 rows of blocks
    constexpr int64_t kTokens = 65535 * kForwardTokens;
    ensure(args.x.rows <= kTokens, "a short convolution takes at most two million tokens");
    const auto call = [&]<int kVec>() {
      conv_forward_kernel<T, W, kTaps, kVec>
          <<<conv_grid(args.x.cols, kVec, ceil_div(args.x.rows, kForwardTokens)), kThreads, 0, stream>>>(
              args.documents, args.x.rows, args.x.cols, conv_rows(args.x), args.weight.as<W>(), bias_of<W>(args.bias),
              conv_rows(args.out), args.silu);
    };
    packs(args.x, kPack<T>) && packs(args.out, kPack<T>) ? call.template operator()<kPack<T>>()
                                                         : call.template operator()<1>();
  });
  check_launch();
}

int64_t short_conv_scratch_bytes(int64_t tokens, int64_t channels, int64_t taps) {
  return ceil_div(tokens, conv_range(tokens)) * channels * (taps + 1) * static_cast<int64_t>(sizeof(float));
}

void launch(const ShortConvBackward& args, void* scratch, cudaStream_t stream) {
  ensure(args.grad_out.dtype == args.x.dtype && args.grad_x.dtype == args.x.dtype,
         "a short convolution's tensors share a dtype");
  ensure(args.grad_weight.empty() || (args.grad_weight.dtype == DType::f32 && args.grad_weight.contiguous()),
         "weight gradients are contiguous fp32");
  const int64_t tokens = args.x.rows, columns = args.x.cols, range = conv_range(tokens);
  const int64_t ranges = ceil_div(tokens, range);
  float* partials = args.grad_weight.empty() ? nullptr : static_cast<float*>(scratch);
  float* bias_partials =
      args.grad_bias.empty() ? nullptr : static_cast<float*>(scratch) + ranges * columns * args.weight.cols;
  if (tokens > 0) {
    visit_conv(args.x, args.weight, args.bias, [&]<class T, class W, int kTaps>() {
      constexpr int kPacked = 4;
      const auto call = [&]<int kVec>() {
        conv_backward_kernel<T, W, kTaps, kVec><<<conv_grid(columns, kVec, ranges), kThreads, 0, stream>>>(
            args.documents, tokens, columns, range, conv_rows(args.x), args.weight.as<W>(), bias_of<W>(args.bias),
            conv_rows(args.grad_out), conv_rows(args.grad_x), partials, bias_partials, args.silu);
      };
      packs(args.x, kPacked) && packs(args.grad_out, kPacked) && packs(args.grad_x, kPacked)
          ? call.template operator()<kPacked>()
          : call.template operator()<1>();
    });
    check_launch();
  }
  if (partials)
    launch_sum_partials(partials, ranges, columns * args.weight.cols, args.grad_weight.as<float>(), args.accumulate,
                        stream);
  if (bias_partials)
    launch_sum_partials(bias_partials, ranges, columns, args.grad_bias.as<float>(), args.accumulate, stream);
}

void launch(const ShortConvCached& args, cudaStream_t stream) {
  if (args.x.rows == 0) return;
  ensure(args.out.dtype == args.x.dtype && args.window.dtype == args.x.dtype,
         "a short convolution's tensors share a dtype");
  visit_conv(args.x, args.weight, args.bias, [&]<class T, class W, int kTaps>() {
    const dim3 grid = conv_grid(args.x.cols, 1, args.x.rows);
    conv_cached_kernel<T, W, kTaps><<<grid, kThreads, 0, stream>>>(
        args.x.cols, args.sequences, args.positions, conv_rows(args.x), args.weight.as<W>(), bias_of<W>(args.bias),
        conv_rows(args.window), conv_rows(args.out), args.silu);
    conv_window_kernel<T, kTaps><<<grid, kThreads, 0, stream>>>(
        args.x.rows, args.x.cols, args.sequences, args.positions, conv_rows(args.x), conv_rows(args.window));
  });
  check_launch();
}

}  // namespace megatrain
