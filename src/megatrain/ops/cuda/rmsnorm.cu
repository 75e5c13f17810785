// A "vector" is one group of one row: row v / groups, group v % groups. One block normalises one vector. In backward a
// block walks over kVectorsPerPartial of them, so the weight's gradient is a sum over a fixed tree.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kMostThreads = 256;
constexpr int64_t kVectorsPerPartial = 16;

struct Rows {
  void* data;
  int64_t stride;

  template <class T>
  __device__ T* vector(int64_t v, int64_t groups, int64_t size) const {
    return static_cast<T*>(data) + v / groups * stride + v % groups * size;
  }
};
Rows rows_of(const View& view) { return {view.data, view.row_stride}; }

// The weight plus its offset, if there is one; ones without a weight.
template <class T, bool kOffset, int kVec>
__device__ void load_weight(const T* weight, int64_t at, float offset, float (&w)[kVec]) {
  if (!weight) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) w[j] = 1.0f;
    return;
  }
  load<T, kVec>(weight + at, w);
  if constexpr (kOffset) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) w[j] += offset;
  }
}

// The mean of a vector, or zero if it is not centred.
template <class T, int kVec>
__device__ float mean_of(const T* from, int64_t size, bool centred, float* shared) {
  if (!centred) return 0;
  float sum = 0;
  for (int64_t c = threadIdx.x * kVec; c < size; c += blockDim.x * kVec) {
    float a[kVec];
    load<T, kVec>(from + c, a);
#pragma unroll
    for (int j = 0; j < kVec; ++j) sum += a[j];
  }
  return block_sum(sum, shared) / static_cast<float>(size);
}

// kMore: there is a weight offset, a residual or a mean to subtract.
template <class T, int kVec, bool kMore>
__global__ void forward_kernel(Rows x, const T* weight, float offset, float eps, int64_t groups, int64_t size,
                               bool centred, Rows residual, Rows out, float* inv_rms) {
  __shared__ float shared[32];
  const int64_t v = blockIdx.x;
  const T* from = x.vector<T>(v, groups, size);
  T* to = out.vector<T>(v, groups, size);
  float mean = 0;
  if constexpr (kMore) mean = mean_of<T, kVec>(from, size, centred, shared);
  float squares = 0;
  for (int64_t c = threadIdx.x * kVec; c < size; c += blockDim.x * kVec) {
    float a[kVec];
    load<T, kVec>(from + c, a);
#pragma unroll
    for (int j = 0; j < kVec; ++j) squares += (a[j] - mean) * (a[j] - mean);
  }
  squares = block_sum(squares, shared);
  const float inv = 1.0f / sqrtf(squares / static_cast<float>(size) + eps);
  if (threadIdx.x == 0) inv_rms[v] = inv;
  for (int64_t c = threadIdx.x * kVec; c < size; c += blockDim.x * kVec) {
    float a[kVec], w[kVec];
    load<T, kVec>(from + c, a);
    load_weight<T, kMore>(weight, c, offset, w);
#pragma unroll
    for (int j = 0; j < kVec; ++j) a[j] = (a[j] - mean) * inv * w[j];
    if constexpr (kMore) {
      if (residual.data) {
        float r[kVec];
        load<T, kVec>(residual.vector<T>(v, groups, size) + c, r);
#pragma unroll
        for (int j = 0; j < kVec; ++j) a[j] += r[j];
      }
    }
    store<T, kVec>(to + c, a);
  }
}

// sums[(k * kVec + j) * threads + thread] is the weight gradient of column (k * threads + thread) * kVec + j: each
// thread touches only its own, and a warp touches 32 banks.
template <class T, int kVec, bool kMore>
__global__ void backward_kernel(Rows x, const T* weight, float offset, const float* inv_rms, int64_t groups,
                                int64_t size, bool centred, int64_t vectors, Rows grad_out, Rows residual, Rows grad_x,
                                float* partials) {
  extern __shared__ float sums[];
  __shared__ float shared[32];
  const int64_t stride = static_cast<int64_t>(blockDim.x) * kVec;
  const int64_t pieces = (size + stride - 1) / stride;
  for (int64_t i = threadIdx.x; i < pieces * stride; i += blockDim.x) sums[i] = 0;

  const int64_t begin = blockIdx.x * kVectorsPerPartial;
  const int64_t end = begin + kVectorsPerPartial < vectors ? begin + kVectorsPerPartial : vectors;
  for (int64_t v = begin; v < end; ++v) {
    const T* in = x.vector<T>(v, groups, size);
    const T* dy = grad_out.vector<T>(v, groups, size);
    T* dx = grad_x.vector<T>(v, groups, size);
    const T* res = residual.data ? residual.vector<T>(v, groups, size) : nullptr;
    const float inv = inv_rms[v];
    float mean = 0, dot = 0, total = 0;
    if constexpr (kMore) mean = mean_of<T, kVec>(in, size, centred, shared);
    for (int64_t c = threadIdx.x * kVec, k = 0; c < size; c += stride, ++k) {
      float a[kVec], d[kVec], w[kVec];
      load<T, kVec>(in + c, a);
      load<T, kVec>(dy + c, d);
      load_weight<T, kMore>(weight, c, offset, w);
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        dot += d[j] * w[j] * (a[j] - mean);
        if constexpr (kMore) total += d[j] * w[j];
        sums[(k * kVec + j) * blockDim.x + threadIdx.x] += d[j] * ((a[j] - mean) * inv);
      }
    }
    dot = block_sum(dot, shared);
    const float pull = dot * inv * inv / static_cast<float>(size);
    float level = 0;
    if constexpr (kMore) level = centred ? block_sum(total, shared) / static_cast<float>(size) : 0.0f;
    for (int64_t c = threadIdx.x * kVec; c < size; c += stride) {
      float a[kVec], d[kVec], w[kVec], r[kVec];
      load<T, kVec>(in + c, a);
      load<T, kVec>(dy + c, d);
      load_weight<T, kMore>(weight, c, offset, w);
      if (res) load<T, kVec>(res + c, r);
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        const float grad = inv * (d[j] * w[j] - (a[j] - mean) * pull - level);
        d[j] = res ? r[j] + grad : grad;
      }
      store<T, kVec>(dx + c, d);
    }
  }
  float* partial = partials + blockIdx.x * size;
  for (int64_t c = threadIdx.x * kVec, k = 0; c < size; c += stride, ++k) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) partial[c + j] = sums[(k * kVec + j) * blockDim.x + threadIdx.x];
  }
}

// Packs must not straddle groups, so the size of the vector must be a multiple, not just that of the row.
bool packs_groups(const View& view, int64_t size, int count) { return packs(view, count) && size % count == 0; }

// Calls body with the number of elements per access, and whether the kernel does `more`.
template <int kPacked, class Body>
void visit_variant(bool packed, bool more, const Body& body) {
  if (packed) {
    more ? body.template operator()<kPacked, true>() : body.template operator()<kPacked, false>();
  } else {
    more ? body.template operator()<1, true>() : body.template operator()<1, false>();
  }
}

// The elements of one group of a row.
template <class Args>
int64_t vector_size(const Args& args) {
  const int64_t size = args.weight.empty() ? args.x.cols / args.groups : args.weight.cols;
  ensure(args.x.cols == args.groups * size, "an RMSNorm row holds `groups` vectors of the weight's size");
  ensure(args.weight.empty() || args.weight.dtype == args.x.dtype, "RMSNorm tensors share a dtype");
  return size;
}

}  // namespace

void launch(const RmsNormForward& args, cudaStream_t stream) {
  const int64_t size = vector_size(args), vectors = args.x.rows * args.groups;
  if (vectors == 0) return;
  ensure(args.out.dtype == args.x.dtype, "RMSNorm tensors share a dtype");
  visit_elements(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const bool packed = packs_groups(args.x, size, kPack<T>) && packs_groups(args.out, size, kPack<T>) &&
                        packs(args.residual, kPack<T>) && packs(args.weight, kPack<T>);
    const bool more = args.weight_offset != 0 || !args.residual.empty() || args.centred;
    visit_variant<kPack<T>>(packed, more, [&]<int kVec, bool kMore>() {
      forward_kernel<T, kVec, kMore>
          <<<grid_size(vectors), row_threads(ceil_div(size, kVec), kMostThreads), 0, stream>>>(
              rows_of(args.x), args.weight.as<T>(), args.weight_offset, args.eps, args.groups, size, args.centred,
              rows_of(args.residual), rows_of(args.out), args.inv_rms);
    });
  });
  check_launch();
}

int64_t rmsnorm_scratch_bytes(int64_t rows, int64_t groups, int64_t size) {
  return ceil_div(rows * groups, kVectorsPerPartial) * size * static_cast<int64_t>(sizeof(float));
}

void launch(const RmsNormBackward& args, void* scratch, cudaStream_t stream) {
  const int64_t size = vector_size(args), vectors = args.x.rows * args.groups;
  ensure(args.grad_out.dtype == args.x.dtype && args.grad_x.dtype == args.x.dtype, "RMSNorm tensors share a dtype");
  ensure(args.grad_weight.empty() || args.grad_weight.dtype == DType::f32, "weight gradients are fp32");
  float* partials = static_cast<float*>(scratch);
  const int64_t blocks = ceil_div(vectors, kVectorsPerPartial);
  if (vectors > 0) {
    visit_elements(args.x.dtype, [&](auto element) {
      using T = decltype(element);
      const bool packed = packs_groups(args.x, size, kPack<T>) && packs_groups(args.grad_out, size, kPack<T>) &&
                          packs_groups(args.grad_x, size, kPack<T>) && packs(args.residual, kPack<T>) &&
                          packs(args.weight, kPack<T>);
      visit_variant<kPack<T>>(packed, args.weight_offset != 0 || args.centred, [&]<int kVec, bool kMore>() {
        const unsigned threads = row_threads(ceil_div(size, kVec), kMostThreads);
        const int64_t shared =
            round_up(size, static_cast<int64_t>(threads) * kVec) * static_cast<int64_t>(sizeof(float));
        if (shared > 40 * 1024) {
          CUDA_CHECK(cudaFuncSetAttribute(backward_kernel<T, kVec, kMore>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(shared)));
        }
        backward_kernel<T, kVec, kMore><<<grid_size(blocks), threads, static_cast<size_t>(shared), stream>>>(
            rows_of(args.x), args.weight.as<T>(), args.weight_offset, args.inv_rms, args.groups, size, args.centred,
            vectors, rows_of(args.grad_out), rows_of(args.residual), rows_of(args.grad_x), partials);
      });
    });
    check_launch();
  }
  if (args.grad_weight.empty()) return;
  launch_sum_partials(partials, blocks, size, args.grad_weight.as<float>(), args.accumulate, stream);
}

}  // namespace megatrain
