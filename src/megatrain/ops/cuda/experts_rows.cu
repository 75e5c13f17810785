// Passes over the rows of a group of experts. A block owns one row at a time; the number of rows is read on the device.
#include <cmath>

#include "megatrain/ops/cuda/gated.cuh"
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kMostThreads = 256;
constexpr int64_t kMostBlocks = 8192;
constexpr int64_t kMostChoices = 32;

unsigned row_blocks(const ExpertRows& rows) { return grid_size(rows.most < kMostBlocks ? rows.most : kMostBlocks); }

__device__ int64_t count_of(const int32_t* begin, int64_t experts) { return begin[experts] - begin[0]; }

template <class T, int kVec>
__global__ void gather_kernel(const T* x, int64_t x_stride, const int32_t* pair_of_row, int64_t choices,
                              const int32_t* begin, int64_t experts, T* out, int64_t out_stride, int64_t cols) {
  using Packed = Pack<T, kVec>;
  const int64_t rows = count_of(begin, experts), first = begin[0];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* from = x + pair_of_row[first + row] / choices * x_stride;
    T* to = out + row * out_stride;
    for (int64_t c = threadIdx.x * kVec; c < cols; c += blockDim.x * kVec)
      *reinterpret_cast<Packed*>(to + c) = *reinterpret_cast<const Packed*>(from + c);
  }
}

// How gate and up are changed before the activation, and their gradients after it. A NaN stays NaN. Where a value is
// clamped, its gradient is zero.
struct Limits {
  float limit;  // infinity: none
  float up_offset;

  __device__ float gate(float x) const { return x > limit ? limit : x; }
  __device__ float up(float x) const { return (x > limit ? limit : x < -limit ? -limit : x) + up_offset; }
  __device__ float grad_gate(float gate, float grad) const { return gate > limit ? 0.0f : grad; }
  __device__ float grad_up(float up, float grad) const { return up > limit || up < -limit ? 0.0f : grad; }
};
Limits limits_of(const Gate& gate) { return {gate.limit > 0 ? gate.limit : INFINITY, gate.up_offset}; }

template <class Act, class T, int kVec>
__global__ void gated_kernel(const T* gate_up, int64_t in_stride, T* out, int64_t out_stride, int64_t cols,
                             const int32_t* begin, int64_t experts, Limits limits) {
  const int64_t rows = count_of(begin, experts);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* gate = gate_up + row * in_stride;
    T* to = out + row * out_stride;
    for (int64_t c = threadIdx.x * kVec; c < cols; c += blockDim.x * kVec) {
      float g[kVec], u[kVec];
      load<T, kVec>(gate + c, g);
      load_up<Act, T, kVec>(gate + c, cols, u);
#pragma unroll
      for (int j = 0; j < kVec; ++j) g[j] = gated<Act>(limits.gate(g[j]), limits.up(u[j]));
      store<T, kVec>(to + c, g);
    }
  }
}

// The expert of a row of the whole micro-batch: the last whose rows begin at or before it.
__device__ int64_t expert_of_row(const int32_t* begin, int64_t experts, int64_t row) {
  int64_t low = 0, high = experts;  // begin[low] <= row < begin[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (begin[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

struct GatedBackwardRows {
  const int32_t* begin;
  int64_t experts;
  const int32_t* pair_of_row;
  const float* weights;
  int64_t gate_up_stride, grad_act_stride, grad_y_stride, bias_stride;
  int64_t ff, hidden;
  Limits limits;
  float* grad_weights;
};

// `bias` is nullptr if there is none.
template <class Act, class T, int kVec>
__global__ void gated_backward_kernel(GatedBackwardRows args, T* gate_up, T* grad_act, T* grad_y, const T* bias) {
  __shared__ float shared[32];
  const int64_t rows = count_of(args.begin, args.experts), first = args.begin[0];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int32_t pair = args.pair_of_row[first + row];
    const float weight = args.weights[pair];
    T* gate = gate_up + row * args.gate_up_stride;
    T* act = grad_act + row * args.grad_act_stride;
    float dot = 0;
    for (int64_t c = threadIdx.x * kVec; c < args.ff; c += blockDim.x * kVec) {
      float g[kVec], u[kVec], d[kVec];
      load<T, kVec>(gate + c, g);
      load_up<Act, T, kVec>(gate + c, args.ff, u);
      load<T, kVec>(act + c, d);
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        const float limited_gate = args.limits.gate(g[j]), limited_up = args.limits.up(u[j]);
        const float out = gated<Act>(limited_gate, limited_up);
        const GatedGradient both = gated_gradient<Act>(limited_gate, limited_up, weight * d[j]);
        dot += d[j] * out;
        d[j] = weight * out;
        g[j] = args.limits.grad_gate(g[j], both.gate);
        u[j] = args.limits.grad_up(u[j], both.up);
      }
      store<T, kVec>(gate + c, g);
      store_up<Act, T, kVec>(gate + c, args.ff, u);
      store<T, kVec>(act + c, d);
    }
    if (bias) {
      const T* bias_row = bias + expert_of_row(args.begin, args.experts, first + row) * args.bias_stride;
      T* dy = grad_y + row * args.grad_y_stride;
      for (int64_t c = threadIdx.x * kVec; c < args.hidden; c += blockDim.x * kVec) {
        float d[kVec], b[kVec];
        load<T, kVec>(dy + c, d);
        load<T, kVec>(bias_row + c, b);
#pragma unroll
        for (int j = 0; j < kVec; ++j) {
          dot += d[j] * b[j];
          d[j] = weight * d[j];
        }
        store<T, kVec>(dy + c, d);
      }
    }
    dot = block_sum(dot, shared);
    if (threadIdx.x == 0) args.grad_weights[pair] = dot;
  }
}

struct CombineTokens {
  const int32_t* experts;
  const int32_t* row_of_pair;
  const float* weights;  // nullptr: each is 1
  int choices;
  int64_t first_expert, group_experts;
  const int32_t* begin;
  bool descending;
  const void* from;  // nullptr: zero
  bool from_bf16;
  bool in_place;  // `from` and `out` are the same
  int64_t from_stride, x_stride, out_stride, cols;
};

// One block per token. Its rows in the group are ordered by their experts, which are all different.
template <class X, class Out, int kVec>
__global__ void combine_kernel(CombineTokens args, const X* x, Out* out) {
  __shared__ int64_t row_of[kMostChoices];
  __shared__ float weight_of[kMostChoices];
  __shared__ int rows;
  const int64_t token = blockIdx.x;
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x;
    const int64_t pair = token * args.choices + lane;
    const int expert = lane < args.choices ? args.experts[pair] : -1;
    const bool here = expert >= args.first_expert && expert < args.first_expert + args.group_experts;
    const unsigned all = __ballot_sync(0xFFFFFFFFu, here);
    int place = 0;
    for (int j = 0; j < args.choices; ++j) {
      const int other = __shfl_sync(0xFFFFFFFFu, expert, j);
      if ((all >> j & 1u) && (args.descending ? other > expert : other < expert)) ++place;
    }
    if (here) {
      row_of[place] = args.row_of_pair[pair] - args.begin[0];
      weight_of[place] = args.weights ? args.weights[pair] : 1.0f;
    }
    if (lane == 0) rows = __popc(all);
  }
  __syncthreads();
  if (rows == 0 && args.in_place) return;
  Out* to = out + token * args.out_stride;
  for (int64_t c = threadIdx.x * kVec; c < args.cols; c += blockDim.x * kVec) {
    float sum[kVec];
    if (!args.from) {
#pragma unroll
      for (int j = 0; j < kVec; ++j) sum[j] = 0;
    } else if (args.from_bf16) {
      load<Bf16, kVec>(static_cast<const Bf16*>(args.from) + token * args.from_stride + c, sum);
    } else {
      load<float, kVec>(static_cast<const float*>(args.from) + token * args.from_stride + c, sum);
    }
    for (int i = 0; i < rows; ++i) {
      float row[kVec];
      load<X, kVec>(x + row_of[i] * args.x_stride + c, row);
      const float weight = weight_of[i];
#pragma unroll
      for (int j = 0; j < kVec; ++j) sum[j] = fmaf(weight, row[j], sum[j]);
    }
    store<Out, kVec>(to + c, sum);
  }
}

// Calls body with the number of elements per access.
template <int kPacked, class Body>
void visit_packs(bool packed, const Body& body) {
  packed ? body.template operator()<kPacked>() : body.template operator()<1>();
}

}  // namespace

void launch(const GatherRows& args, cudaStream_t stream) {
  ensure(args.x.dtype == args.out.dtype && args.x.cols == args.out.cols, "gathered rows are copies");
  if (args.rows.most == 0) return;
  visit_elements(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    visit_packs<kPack<T>>(packs(args.x, kPack<T>) && packs(args.out, kPack<T>), [&]<int kVec>() {
      gather_kernel<T, kVec>
          <<<row_blocks(args.rows), row_threads(ceil_div(args.x.cols, kVec), kMostThreads), 0, stream>>>(
              args.x.as<T>(), args.x.row_stride, args.pair_of_row, args.choices, args.rows.begin, args.rows.experts,
              args.out.as<T>(), args.out.row_stride, args.x.cols);
    });
  });
  check_launch();
}

void launch(const ExpertsGated& args, cudaStream_t stream) {
  ensure(args.gate_up.cols == parts_of(args.gate.activation) * args.out.cols && args.gate_up.dtype == args.out.dtype,
         "a gated activation halves a row");
  if (args.rows.most == 0) return;
  visit_elements(args.out.dtype, [&](auto element) {
    using T = decltype(element);
    // The up half starts at column F, so F itself must be a whole number of packs.
    visit_packs<kPack<T>>(packs(args.gate_up, kPack<T>) && packs(args.out, kPack<T>), [&]<int kVec>() {
      visit_activation(args.gate.activation, [&]<class Act>() {
        gated_kernel<Act, T, kVec>
            <<<row_blocks(args.rows), row_threads(ceil_div(args.out.cols, kVec), kMostThreads), 0, stream>>>(
                args.gate_up.as<T>(), args.gate_up.row_stride, args.out.as<T>(), args.out.row_stride, args.out.cols,
                args.rows.begin, args.rows.experts, limits_of(args.gate));
      });
    });
  });
  check_launch();
}

void launch(const ExpertsGatedBackward& args, cudaStream_t stream) {
  const View& bias = args.bias.first;
  ensure(args.gate_up.cols == parts_of(args.gate.activation) * args.grad_act.cols &&
             args.gate_up.dtype == args.grad_act.dtype,
         "a gated activation halves a row");
  ensure(args.bias.empty() || (bias.cols == args.grad_y.cols && bias.dtype == args.gate_up.dtype &&
                               args.grad_y.dtype == args.gate_up.dtype),
         "a bias is as wide as the token's gradient, and of its dtype");
  if (args.rows.most == 0) return;
  const int64_t hidden = args.bias.empty() ? 0 : args.grad_y.cols;
  const GatedBackwardRows rows{.begin = args.rows.begin,
                               .experts = args.rows.experts,
                               .pair_of_row = args.pair_of_row,
                               .weights = args.weights,
                               .gate_up_stride = args.gate_up.row_stride,
                               .grad_act_stride = args.grad_act.row_stride,
                               .grad_y_stride = args.grad_y.row_stride,
                               .bias_stride = args.bias.stride,
                               .ff = args.grad_act.cols,
                               .hidden = hidden,
                               .limits = limits_of(args.gate),
                               .grad_weights = args.grad_weights};
  visit_elements(args.gate_up.dtype, [&](auto element) {
    using T = decltype(element);
    const bool packed = packs(args.gate_up, kPack<T>) && packs(args.grad_act, kPack<T>) &&
                        (args.bias.empty() ||
                         (packs(args.grad_y, kPack<T>) && packs(bias, kPack<T>) && args.bias.stride % kPack<T> == 0));
    visit_packs<kPack<T>>(packed, [&]<int kVec>() {
      const unsigned threads = row_threads(ceil_div(args.grad_act.cols, kVec), kMostThreads);
      visit_activation(args.gate.activation, [&]<class Act>() {
        gated_backward_kernel<Act, T, kVec><<<row_blocks(args.rows), threads, 0, stream>>>(
            rows, args.gate_up.as<T>(), args.grad_act.as<T>(), args.grad_y.as<T>(), bias.as<T>());
      });
    });
  });
  check_launch();
}

void launch(const CombineRows& args, cudaStream_t stream) {
  ensure(args.x.cols == args.out.cols && (args.from.empty() || args.from.cols == args.out.cols),
         "rows are as wide as their sum");
  ensure(args.choices > 0 && args.choices <= kMostChoices, "a token chooses at most 32 experts");
  ensure(args.from.empty() || args.from.dtype == DType::f32 || args.from.dtype == DType::bf16,
         "rows are added to fp32 or bf16");
  if (args.out.rows == 0) return;
  const CombineTokens tokens{.experts = args.experts,
                             .row_of_pair = args.row_of_pair,
                             .weights = args.weights,
                             .choices = static_cast<int>(args.choices),
                             .first_expert = args.first_expert,
                             .group_experts = args.rows.experts,
                             .begin = args.rows.begin,
                             .descending = args.descending,
                             .from = args.from.data,
                             .from_bf16 = args.from.dtype == DType::bf16,
                             .in_place = args.from.data == args.out.data && args.from.dtype == args.out.dtype,
                             .from_stride = args.from.row_stride,
                             .x_stride = args.x.row_stride,
                             .out_stride = args.out.row_stride,
                             .cols = args.out.cols};
  visit_elements(args.x.dtype, [&](auto x_element) {
    using X = decltype(x_element);
    visit_elements(args.out.dtype, [&](auto out_element) {
      using Out = decltype(out_element);
      const bool packed = packs(args.x, kPack<X>) && packs(args.from, kPack<X>) && packs(args.out, kPack<X>);
      visit_packs<kPack<X>>(packed, [&]<int kVec>() {
        combine_kernel<X, Out, kVec>
            <<<grid_size(args.out.rows), row_threads(ceil_div(args.out.cols, kVec), kMostThreads), 0, stream>>>(
                tokens, args.x.as<X>(), args.out.as<Out>());
      });
    });
  });
  check_launch();
}

}  // namespace megatrain
