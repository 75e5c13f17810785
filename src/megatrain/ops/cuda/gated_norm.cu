// A "vector" is one head of one row. A warp normalises a vector, which its lanes hold in registers: lane l has elements
// (step * 32 + l) * kVec + j. In backward a block walks over a range of vectors that depends only on their number, so
// the weight's gradient is a sum over a fixed tree.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kWarps = 8;
constexpr int64_t kMostSize = 1024;
constexpr int64_t kLeastVectors = 64;  // of a block in backward
constexpr int64_t kMostBlocks = 1024;

struct HeadRows {
  void* data;
  int64_t stride;

  template <class T>
  __device__ T* vector(int64_t v, int64_t heads, int64_t size) const {
    return static_cast<T*>(data) + v / heads * stride + v % heads * size;
  }
};

HeadRows head_rows(const View& view) { return {view.data, view.row_stride}; }

// A lane's elements; 0 beyond the vector.
template <class T, int kVec, int kSteps>
__device__ void load_lane(const T* from, int64_t size, int lane, float (&values)[kSteps][kVec]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int64_t at = static_cast<int64_t>(step * 32 + lane) * kVec;
#pragma unroll
    for (int j = 0; j < kVec; ++j) values[step][j] = 0;
    if (at < size) load<T, kVec>(from + at, values[step]);
  }
}

template <class T, int kVec, int kSteps>
__device__ void store_lane(T* to, int64_t size, int lane, const float (&values)[kSteps][kVec]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int64_t at = static_cast<int64_t>(step * 32 + lane) * kVec;
    if (at < size) store<T, kVec>(to + at, values[step]);
  }
}

template <int kVec, int kSteps>
__device__ float inverse_rms(const float (&x)[kSteps][kVec], int64_t size, float eps) {
  float squares = 0;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) squares += x[step][j] * x[step][j];
  }
  return 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(size) + eps);
}

template <class T, int kVec, int kSteps>
__global__ void gated_norm_forward_kernel(int64_t vectors, int64_t heads, int64_t size, float eps, HeadRows x,
                                          HeadRows z, const T* weight, HeadRows out) {
  const int lane = threadIdx.x % 32;
  const int64_t v = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (v >= vectors) return;
  float a[kSteps][kVec], gate[kSteps][kVec], w[kSteps][kVec];
  load_lane<T, kVec, kSteps>(x.vector<const T>(v, heads, size), size, lane, a);
  load_lane<T, kVec, kSteps>(z.vector<const T>(v, heads, size), size, lane, gate);
  load_lane<T, kVec, kSteps>(weight, size, lane, w);
  const float inv = inverse_rms(a, size, eps);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int j = 0; j < kVec; ++j)
      a[step][j] = a[step][j] * inv * w[step][j] * (gate[step][j] / (1.0f + expf(-gate[step][j])));
  }
  store_lane<T, kVec, kSteps>(out.vector<T>(v, heads, size), size, lane, a);
}

// Block b walks over vectors [b * range, (b + 1) * range); its warps take turns. partials (blocks, size)
template <class T, int kVec, int kSteps>
__global__ void gated_norm_backward_kernel(int64_t vectors, int64_t range, int64_t heads, int64_t size, float eps,
                                           HeadRows x, HeadRows z, const T* weight, HeadRows grad_out, HeadRows grad_x,
                                           HeadRows grad_z, float* partials) {
  __shared__ float shared[kWarps][kSteps * kVec * 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t begin = blockIdx.x * range, end = begin + range < vectors ? begin + range : vectors;
  float w[kSteps][kVec], sums[kSteps][kVec];
  load_lane<T, kVec, kSteps>(weight, size, lane, w);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) sums[step][j] = 0;
  }
  for (int64_t v = begin + warp; v < end; v += kWarps) {
    float a[kSteps][kVec], gate[kSteps][kVec], grad[kSteps][kVec];
    load_lane<T, kVec, kSteps>(x.vector<const T>(v, heads, size), size, lane, a);
    load_lane<T, kVec, kSteps>(z.vector<const T>(v, heads, size), size, lane, gate);
    load_lane<T, kVec, kSteps>(grad_out.vector<const T>(v, heads, size), size, lane, grad);
    const float inv = inverse_rms(a, size, eps);
    float dot = 0;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        const float s = 1.0f / (1.0f + expf(-gate[step][j]));
        const float value = gate[step][j] / (1.0f + expf(-gate[step][j]));
        const float normed = a[step][j] * inv, weighted = grad[step][j] * w[step][j];
        sums[step][j] += grad[step][j] * (normed * value);
        gate[step][j] = weighted * normed * (s + value * (1.0f - s));
        grad[step][j] = weighted * value;
        dot += grad[step][j] * a[step][j];
      }
    }
    const float along = warp_sum(dot) * inv * inv / static_cast<float>(size);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int j = 0; j < kVec; ++j) grad[step][j] = inv * (grad[step][j] - a[step][j] * along);
    }
    store_lane<T, kVec, kSteps>(grad_x.vector<T>(v, heads, size), size, lane, grad);
    store_lane<T, kVec, kSteps>(grad_z.vector<T>(v, heads, size), size, lane, gate);
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) shared[warp][(step * 32 + lane) * kVec + j] = sums[step][j];
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
    float total = 0;
    for (int k = 0; k < kWarps; ++k) total += shared[k][i];
    partials[blockIdx.x * size + i] = total;
  }
}

int64_t norm_range(int64_t vectors) {
  const int64_t least = ceil_div(vectors, kMostBlocks);
  return least < kLeastVectors ? kLeastVectors : least;
}

// Calls body with the element type, the elements per access and the steps of a lane.
template <class Body>
void visit_sizes(DType dtype, int64_t size, bool packed, const Body& body) {
  ensure(size <= kMostSize, "a gated norm has heads of at most 1024 elements");
  visit_elements(dtype, [&](auto element) {
    using T = decltype(element);
    if (packed && size <= 128) return body.template operator()<T, 4, 1>();
    if (packed && size <= 256) return body.template operator()<T, 4, 2>();
    if (packed) return body.template operator()<T, 4, 8>();
    if (size <= 128) return body.template operator()<T, 1, 4>();
    return body.template operator()<T, 1, 32>();
  });
}

// Whether the kernels here take these args: the gate behind the norm, and a weight that the heads share.
template <class Args>
bool by_heads(const Args& args) {
  return !args.gate_first && args.group_size() == args.weight.cols && args.weight.cols <= kMostSize;
}

bool packs_heads(const View& view, int64_t size) { return packs(view, 4) && size % 4 == 0; }

}  // namespace

void launch(const GatedNormForward& args, cudaStream_t stream) {
  if (!by_heads(args)) return launch_norm_groups(args, stream);
  const int64_t size = args.weight.cols, heads = args.x.cols / size, vectors = args.x.rows * heads;
  if (vectors == 0) return;
  ensure(args.x.cols % size == 0 && args.z.cols == args.x.cols, "a row of a gated norm has whole heads");
  ensure(args.z.dtype == args.x.dtype && args.out.dtype == args.x.dtype && args.weight.dtype == args.x.dtype,
         "a gated norm's tensors share a dtype");
  const bool packed =
      packs_heads(args.x, size) && packs_heads(args.z, size) && packs_heads(args.out, size) && packs(args.weight, 4);
  visit_sizes(args.x.dtype, size, packed, [&]<class T, int kVec, int kSteps>() {
    gated_norm_forward_kernel<T, kVec, kSteps><<<grid_size(ceil_div(vectors, kWarps)), kWarps * 32, 0, stream>>>(
        vectors, heads, size, args.eps, head_rows(args.x), head_rows(args.z), args.weight.as<T>(), head_rows(args.out));
  });
  check_launch();
}

int64_t gated_norm_scratch_bytes(int64_t rows, int64_t heads, int64_t size) {
  const int64_t vectors = rows * heads;
  return ceil_div(vectors, norm_range(vectors)) * size * static_cast<int64_t>(sizeof(float));
}

void launch(const GatedNormBackward& args, void* scratch, cudaStream_t stream) {
  if (!by_heads(args)) return launch_norm_groups(args, scratch, stream);
  const int64_t size = args.weight.cols, heads = args.x.cols / size, vectors = args.x.rows * heads;
  ensure(args.x.cols % size == 0 && args.z.cols == args.x.cols, "a row of a gated norm has whole heads");
  for (const View* view : {&args.z, &args.grad_out, &args.grad_x, &args.grad_z, &args.weight})
    ensure(view->dtype == args.x.dtype, "a gated norm's tensors share a dtype");
  ensure(args.grad_weight.empty() || args.grad_weight.dtype == DType::f32, "weight gradients are fp32");
  const int64_t range = norm_range(vectors), blocks = ceil_div(vectors, range);
  float* partials = static_cast<float*>(scratch);
  if (vectors > 0) {
    const bool packed = packs_heads(args.x, size) && packs_heads(args.z, size) && packs_heads(args.grad_out, size) &&
                        packs_heads(args.grad_x, size) && packs_heads(args.grad_z, size) && packs(args.weight, 4);
    visit_sizes(args.x.dtype, size, packed, [&]<class T, int kVec, int kSteps>() {
      gated_norm_backward_kernel<T, kVec, kSteps><<<grid_size(blocks), kWarps * 32, 0, stream>>>(
          vectors, range, heads, size, args.eps, head_rows(args.x), head_rows(args.z), args.weight.as<T>(),
          head_rows(args.grad_out), head_rows(args.grad_x), head_rows(args.grad_z), partials);
    });
    check_launch();
  }
  if (args.grad_weight.empty()) return;
  launch_sum_partials(partials, blocks, size, args.grad_weight.as<float>(), args.accumulate, stream);
}

}  // namespace megatrain
