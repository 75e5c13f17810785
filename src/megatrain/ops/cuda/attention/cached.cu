#include <cmath>

#include "megatrain/ops/cuda/attention/sinks.cuh"
#include "megatrain/ops/cuda/attention/launch.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kThreads = 256;
constexpr int kLaneFloats = 16;  // maximum elements of a head that one lane holds

struct Rows {
  void* data;
  int64_t stride;

  template <class T>
  __device__ T* at(int64_t row, int64_t column) const {
    return static_cast<T*>(data) + row * stride + column;
  }
};

Rows rows_of(const View& view) { return {view.data, view.row_stride}; }

// One block copies the key and the value of one new token to their cache rows.
template <class T, int kVec>
__global__ void append_kernel(int64_t context, int64_t columns, const int32_t* sequences, const int32_t* positions,
                              Rows k, Rows v, Rows k_cache, Rows v_cache) {
  const int64_t token = blockIdx.x;
  const int64_t row = sequences[token] * context + positions[token];
  for (int64_t i = threadIdx.x * kVec; i < columns; i += blockDim.x * kVec) {
    *reinterpret_cast<Pack<T, kVec>*>(k_cache.at<T>(row, i)) =
        *reinterpret_cast<const Pack<T, kVec>*>(k.at<T>(token, i));
    *reinterpret_cast<Pack<T, kVec>*>(v_cache.at<T>(row, i)) =
        *reinterpret_cast<const Pack<T, kVec>*>(v.at<T>(token, i));
  }
}

// One block is one query head of one new token. Groups of kGroup lanes take turns with the keys. A lane holds the
// elements (c * kGroup + lane) * kVec + j of a head, c < kColumns, j < kVec. Each group keeps a softmax over its own
// keys, and the groups are merged in order, so the result depends only on the position.
template <class T, int kVec, int kColumns, int kGroup>
__global__ void attend_kernel(AttentionShape shape, int64_t context, int64_t group, const int32_t* sequences,
                              const int32_t* positions, Rows q, Rows k_cache, Rows v_cache, Sinks sinks, Rows out) {
  static_assert(kVec * kColumns <= kLaneFloats);
  constexpr int kGroups = kThreads / kGroup, kWidth = kGroup * kVec * kColumns;
  __shared__ float sums[kGroups * kWidth];
  __shared__ float most_of[kGroups], total_of[kGroups];
  const int64_t token = blockIdx.x, head = blockIdx.y, size = shape.head_dim;
  const int lane = threadIdx.x % kGroup, mine = threadIdx.x / kGroup;
  const int64_t position = positions[token], first_row = sequences[token] * context;
  const int64_t oldest = shape.window > 0 && position >= shape.window ? position - shape.window + 1 : 0;
  const int64_t column = head / group * size;

  float query[kColumns][kVec], sum[kColumns][kVec];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int64_t at = (c * kGroup + lane) * kVec;
#pragma unroll
    for (int j = 0; j < kVec; ++j) query[c][j] = sum[c][j] = 0;
    if (at < size) load<T, kVec>(q.at<const T>(token, head * size + at), query[c]);
  }
  float most = -INFINITY, total = 0;
  // All lanes of a warp run the same number of rounds, because the shuffles need all of them.
  const int64_t rounds = (position - oldest + kGroups) / kGroups;
#pragma unroll 2
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t key = oldest + round * kGroups + mine;
    const bool visible = key <= position;
    float keys[kColumns][kVec], values[kColumns][kVec], score = 0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int64_t at = (c * kGroup + lane) * kVec;
      if (!visible || at >= size) continue;
      load<T, kVec>(k_cache.at<const T>(first_row + key, column + at), keys[c]);
      load<T, kVec>(v_cache.at<const T>(first_row + key, column + at), values[c]);
#pragma unroll
      for (int j = 0; j < kVec; ++j) score += query[c][j] * keys[c][j];
    }
#pragma unroll
    for (int offset = kGroup / 2; offset > 0; offset /= 2) score += __shfl_xor_sync(0xFFFFFFFFu, score, offset);
    if (!visible) continue;
    score *= shape.scale;
    if (shape.cap > 0) score = shape.cap * tanhf(score / shape.cap);
    const float top = fmaxf(most, score), keep = expf(most - top), weight = expf(score - top);
    total = total * keep + weight;
    most = top;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if ((c * kGroup + lane) * kVec >= size) continue;
#pragma unroll
      for (int j = 0; j < kVec; ++j) sum[c][j] = sum[c][j] * keep + weight * values[c][j];
    }
  }

#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
#pragma unroll
    for (int j = 0; j < kVec; ++j) sums[mine * kWidth + (c * kGroup + lane) * kVec + j] = sum[c][j];
  }
  if (lane == 0) {
    most_of[mine] = most;
    total_of[mine] = total;
  }
  __syncthreads();
  float top = most_of[0];  // never -infinity, because group 0 has the oldest key
  for (int g = 1; g < kGroups; ++g) top = fmaxf(top, most_of[g]);
  if (sinks.data) top = fmaxf(top, sinks.at(head));
  float whole = 0;
  for (int g = 0; g < kGroups; ++g) whole += total_of[g] * expf(most_of[g] - top);
  if (sinks.data) whole += expf(sinks.at(head) - top);
  const float inverse = 1.0f / whole;
  for (int64_t i = threadIdx.x; i < size; i += kThreads) {
    float value = 0;
    for (int g = 0; g < kGroups; ++g) value += sums[g * kWidth + i] * expf(most_of[g] - top);
    *out.at<T>(token, head * size + i) = narrow<T>(value * inverse);
  }
}

template <class T, int kVec, int kColumns, int kGroup>
void attend(const CachedAttention& args, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  const dim3 grid(grid_size(shape.tokens), static_cast<unsigned>(shape.heads));
  attend_kernel<T, kVec, kColumns, kGroup><<<grid, kThreads, 0, stream>>>(
      shape, args.context, shape.heads / shape.kv_heads, args.sequences, args.positions, rows_of(args.q),
      rows_of(args.k_cache), rows_of(args.v_cache), sinks_of(args.sinks), rows_of(args.out));
}

// Whether every head of every row can be read in packs of `count` elements.
bool heads_pack(const CachedAttention& args, int count) {
  for (const View* view : {&args.q, &args.k, &args.v, &args.k_cache, &args.v_cache}) {
    if (!view->empty() && !packs(*view, count)) return false;
  }
  return args.shape.head_dim % count == 0;
}

}  // namespace

void launch(const CachedAttention& args, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  if (shape.tokens == 0) return;
  ensure(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "query heads share key heads evenly");
  ensure(shape.head_dim <= kSimpleHeadDim && shape.heads < 65536, "cached attention has heads of at most 512 elements");
  const bool appends = !args.k.empty();
  ensure((!appends || args.k.dtype == args.q.dtype) && args.k_cache.dtype == args.q.dtype &&
             args.v_cache.dtype == args.q.dtype,
         "cached attention has one dtype");
  visit_elements(args.q.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int kVec = kPack<T>;
    const bool packed = heads_pack(args, kVec);
    const int64_t columns = args.k.cols;
    const auto append = [&]<int kCount>() {
      if (!appends) return;
      append_kernel<T, kCount><<<grid_size(shape.tokens), row_threads(ceil_div(columns, kCount), 256), 0, stream>>>(
          args.context, columns, args.sequences, args.positions, rows_of(args.k), rows_of(args.v),
          rows_of(args.k_cache), rows_of(args.v_cache));
    };
    if (!packed) {
      append.template operator()<1>();
      shape.head_dim <= 256 ? attend<T, 1, 8, 32>(args, stream) : attend<T, 1, kLaneFloats, 32>(args, stream);
    } else {
      append.template operator()<kVec>();
      const int64_t lanes = shape.head_dim / kVec;
      if (lanes <= 8) {
        attend<T, kVec, 1, 8>(args, stream);
      } else if (lanes <= 16) {
        attend<T, kVec, 1, 16>(args, stream);
      } else if (shape.head_dim <= 256) {
        attend<T, kVec, 8 / kVec, 32>(args, stream);
      } else {
        attend<T, kVec, kLaneFloats / kVec, 32>(args, stream);
      }
    }
  });
  check_launch();
}

}  // namespace megatrain
