#include "megatrain/device/cuda/column_sum.h"
#include "megatrain/ops/cuda/attention/sinks.cuh"
#include "megatrain/ops/cuda/attention/launch.h"

namespace megatrain {

namespace {

constexpr int kWarps = 8;
constexpr int64_t kTokensPerPartial = 32;

// One block per token. Its log-sum-exps are replaced only after all threads have read them.
template <class T, int kVec>
__global__ void add_sinks_kernel(AttentionShape shape, Documents documents, Sinks sinks, T* out, int64_t stride,
                                 float* lse) {
  const int64_t token = blockIdx.x, columns = shape.heads * shape.head_dim;
  T* row = out + token * stride;
  for (int64_t c = threadIdx.x * kVec; c < columns; c += blockDim.x * kVec) {
    const int64_t head = c / shape.head_dim;
    const float without = lse[lse_place(documents, shape.heads, token, head)];
    const float factor = 1.0f / (1.0f + expf(sinks.at(head) - without));
    float values[kVec];
    load<T, kVec>(row + c, values);
#pragma unroll
    for (int j = 0; j < kVec; ++j) values[j] *= factor;
    store<T, kVec>(row + c, values);
  }
  __syncthreads();
  for (int64_t head = threadIdx.x; head < shape.heads; head += blockDim.x) {
    float* place = lse + lse_place(documents, shape.heads, token, head);
    const float without = *place, sink = sinks.at(head);
    *place = fmaxf(without, sink) + log1pf(expf(-fabsf(without - sink)));
  }
}

// One warp is one head of kTokensPerPartial tokens: partials[blockIdx.x][head] = - sum of exp(sink - lse) <grad_out,
// out>, token by token.
template <class T>
__global__ void sink_gradient_kernel(AttentionShape shape, Documents documents, Sinks sinks, const T* out,
                                     int64_t out_stride, const T* grad_out, int64_t grad_stride, const float* lse,
                                     float* partials) {
  const int lane = threadIdx.x % 32;
  const int64_t head = static_cast<int64_t>(blockIdx.y) * kWarps + threadIdx.x / 32;
  if (head >= shape.heads) return;
  const int64_t begin = blockIdx.x * kTokensPerPartial, column = head * shape.head_dim;
  const int64_t end = begin + kTokensPerPartial < shape.tokens ? begin + kTokensPerPartial : shape.tokens;
  const float sink = sinks.at(head);
  float sum = 0;
#pragma unroll 4
  for (int64_t token = begin; token < end; ++token) {
    const T* o = out + token * out_stride + column;
    const T* d = grad_out + token * grad_stride + column;
    float dot = 0;
    for (int64_t c = lane; c < shape.head_dim; c += 32) dot += widen(o[c]) * widen(d[c]);
    sum -= expf(sink - lse[lse_place(documents, shape.heads, token, head)]) * warp_sum(dot);
  }
  if (lane == 0) partials[blockIdx.x * shape.heads + head] = sum;
}

}  // namespace

void launch_add_sinks(const AttentionForward& args, cudaStream_t stream) {
  if (args.shape.tokens == 0) return;
  const Sinks sinks = sinks_of(args.sinks);
  visit_elements(args.out.dtype, [&](auto element) {
    using T = decltype(element);
    const auto run = [&]<int kVec>() {
      const unsigned threads = row_threads(ceil_div(args.out.cols, kVec), 256);
      add_sinks_kernel<T, kVec><<<grid_size(args.shape.tokens), threads, 0, stream>>>(
          args.shape, args.documents, sinks, args.out.as<T>(), args.out.row_stride, args.lse);
    };
    // A pack must not straddle heads.
    if (packs(args.out, kPack<T>) && args.shape.head_dim % kPack<T> == 0) {
      run.template operator()<kPack<T>>();
    } else {
      run.template operator()<1>();
    }
  });
  check_launch();
}

int64_t sink_gradient_scratch_bytes(const AttentionShape& shape) {
  return ceil_div(shape.tokens, kTokensPerPartial) * shape.heads * static_cast<int64_t>(sizeof(float));
}

void launch_sink_gradient(const AttentionBackward& args, void* scratch, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  ensure(args.grad_sinks.dtype == DType::f32, "weight gradients are fp32");
  const Sinks sinks = sinks_of(args.sinks);
  float* partials = static_cast<float*>(scratch);
  const int64_t count = ceil_div(shape.tokens, kTokensPerPartial);
  if (count > 0) {
    visit_elements(args.out.dtype, [&](auto element) {
      using T = decltype(element);
      const dim3 grid(grid_size(count), static_cast<unsigned>(ceil_div(shape.heads, kWarps)));
      sink_gradient_kernel<T><<<grid, 32 * kWarps, 0, stream>>>(shape, args.documents, sinks, args.out.as<T>(),
                                                                args.out.row_stride, args.grad_out.as<T>(),
                                                                args.grad_out.row_stride, args.lse, partials);
    });
    check_launch();
  }
  launch_sum_partials(partials, count, shape.heads, args.grad_sinks.as<float>(), args.accumulate, stream);
}

}  // namespace megatrain
