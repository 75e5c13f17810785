#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/ops/cuda/numeric.cuh"

namespace megatrain {

namespace {

// One block per token. A thread rotates kVec pairs of one head of `size` elements: (i, i + half), or (2i, 2i + 1) if
// kPairs.
template <class T, int kVec, bool kPairs>
__global__ void rope_kernel(T* x, int64_t row_stride, int64_t heads, int64_t size, int64_t half,
                            const int32_t* positions, const float* cos, const float* sin, float direction) {
  const int64_t token = blockIdx.x;
  const int64_t angles = positions[token] * half;
  for (int64_t i = threadIdx.x * kVec; i < heads * half; i += blockDim.x * kVec) {
    const int64_t head = i / half, at = i % half;
    T* first = x + token * row_stride + head * size + (kPairs ? 2 * at : at);
    T* second = first + (kPairs ? kVec : half);
    float a[kVec], b[kVec], c[kVec], s[kVec];
    load<T, kVec>(first, a);
    load<T, kVec>(second, b);
    load<float, kVec>(cos + angles + at, c);
    load<float, kVec>(sin + angles + at, s);
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      const float turned = s[j] * direction;
      // With kPairs, a and b together hold kVec pairs, one after the other.
      float& x0 = kPairs ? (2 * j < kVec ? a[2 * j % kVec] : b[2 * j % kVec]) : a[j];
      float& x1 = kPairs ? (2 * j + 1 < kVec ? a[(2 * j + 1) % kVec] : b[(2 * j + 1) % kVec]) : b[j];
      const float low = x0 * c[j] - x1 * turned;
      x1 = x1 * c[j] + x0 * turned;
      x0 = low;
    }
    store<T, kVec>(first, a);
    store<T, kVec>(second, b);
  }
}

}  // namespace

void launch(const Rope& args, cudaStream_t stream) {
  if (args.x.rows == 0 || args.heads == 0) return;
  ensure(args.x.cols >= args.heads * args.head_dim, "RoPE rows hold whole heads");
  ensure(args.rotary_dim > 0 && args.rotary_dim % 2 == 0 && args.rotary_dim <= args.head_dim,
         "RoPE turns an even number of a head's elements");
  const int64_t half = args.rotary_dim / 2;
  visit_elements(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const auto run = [&]<int kVec>() {
      const auto kernel = args.pairs ? rope_kernel<T, kVec, true> : rope_kernel<T, kVec, false>;
      kernel<<<grid_size(args.x.rows), row_threads(ceil_div(args.heads * half, kVec), 256), 0, stream>>>(
          args.x.as<T>(), args.x.row_stride, args.heads, args.head_dim, half, args.positions, args.cos, args.sin,
          args.backward ? -1.0f : 1.0f);
    };
    const View angles{const_cast<float*>(args.cos), DType::f32, 2, half, half};
    const View sines{const_cast<float*>(args.sin), DType::f32, 2, half, half};
    View rows = args.x;
    rows.cols = args.heads * args.head_dim;
    // Both halves of every head must start at whole packs.
    if (args.head_dim % kPack<T> == 0 && packs(rows, kPack<T>) && packs(angles, kPack<T>) && packs(sines, kPack<T>)) {
      run.template operator()<kPack<T>>();
    } else {
      run.template operator()<1>();
    }
  });
  check_launch();
}

}  // namespace megatrain
