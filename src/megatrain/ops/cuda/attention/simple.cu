// Attention in fp32 arithmetic, for what cuDNN does not support (fp32 tensors, odd head sizes) and for tiny documents.
//
// A block owns kWarps * kRows rows of one head: queries in forward and grad_q, keys in grad_k and grad_v. A warp owns
// kRows of them. The block walks over tiles of 32 rows of the other side in shared memory. For the scores a lane is a
// row of the tile; for the sums over the tile a lane is a column. Tiles and their order depend only on the tokens, so
// results are reproducible bit for bit.
#include <cmath>

#include "megatrain/ops/cuda/attention/sinks.cuh"
#include "megatrain/ops/cuda/attention/documents.cuh"
#include "megatrain/ops/cuda/attention/launch.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kWarps = 8;
constexpr int kTile = 32;

// kColumns: columns of a head that a lane owns, at lane + 32 * c.
template <int kColumns>
inline constexpr int kRows = kColumns <= 4 ? 4 : 2;
template <int kColumns>
inline constexpr int kBlockRows = kWarps* kRows<kColumns>;
template <int kColumns>
inline constexpr int kWidth = 32 * kColumns;  // of a row that all lanes read at the same position
template <int kColumns>
inline constexpr int kTileWidth = 32 * kColumns + 1;  // of a row that one lane reads: odd, so 32 lanes hit 32 banks

struct Problem {
  AttentionShape shape;
  Documents documents;
  int64_t group;  // query heads per key head
};

// A scaled score with its cap, and the slope of a capped one.
__device__ float capped(const AttentionShape& shape, float product) {
  const float score = product * shape.scale;
  return shape.cap > 0 ? shape.cap * tanhf(score / shape.cap) : score;
}
__device__ float score_slope(const AttentionShape& shape, float score) {
  return shape.cap > 0 ? 1.0f - score / shape.cap * (score / shape.cap) : 1.0f;
}

struct Heads {
  void* data;
  int64_t stride;

  template <class T>
  __device__ T* row(int64_t token, int64_t head, int64_t size) const {
    return static_cast<T*>(data) + token * stride + head * size;
  }
};

// Token t sees keys [first_key(t), t]. Both ends grow with t.
__device__ int64_t first_key(const Problem& problem, int64_t token) {
  const int64_t begin = document_of(problem.documents, token).begin;
  if (problem.shape.window == 0) return begin;
  const int64_t oldest = token - problem.shape.window + 1;
  return oldest > begin ? oldest : begin;
}

// Token t is seen by queries [t, last_query(t)].
__device__ int64_t last_query(const Problem& problem, int64_t token) {
  const int64_t last = document_of(problem.documents, token).end - 1;
  if (problem.shape.window == 0) return last;
  const int64_t newest = token + problem.shape.window - 1;
  return newest < last ? newest : last;
}

__device__ int64_t lse_index(const Problem& problem, int64_t token, int64_t head) {
  return lse_place(problem.documents, problem.shape.heads, token, head);
}

// Loads `rows` rows starting at `first` into a tile of kStride floats per row; zero beyond the tokens and the head's
// size.
template <class T, int kColumns, int kStride>
__device__ void load_rows(float* tile, int rows, const Heads& from, int64_t first, int64_t head,
                          const Problem& problem) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t size = problem.shape.head_dim;
  for (int r = warp; r < rows; r += kWarps) {
    const int64_t token = first + r;
    const bool exists = token < problem.shape.tokens;
    const T* row = exists ? from.row<const T>(token, head, size) : nullptr;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int at = lane + 32 * c;
      tile[r * kStride + at] = exists && at < size ? widen(row[at]) : 0.0f;
    }
  }
}

// Tokens that are not seen have weight 0. Their value may be anything, even a NaN of another document, and is not
// added.
__device__ void add_visible(float& sum, float weight, float value) {
  if (weight != 0.0f) sum += weight * value;
}

// A lane's columns of one row.
template <class T, int kColumns>
__device__ __forceinline__ void write_row(T* to, const float (&value)[kColumns], int lane, int64_t size) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    if (lane + 32 * c < size) to[lane + 32 * c] = narrow<T>(value[c]);
  }
}

// The same for a row of weighted sums, divided by the sum of the weights.
template <class T, int kColumns>
__device__ __forceinline__ void write_mean(T* to, const float (&sum)[kColumns], float total, int lane, int64_t size) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    if (lane + 32 * c < size) to[lane + 32 * c] = narrow<T>(sum[c] / total);
  }
}

// A sink joins the softmax of a row as a score without a value.
template <int kColumns>
__device__ __forceinline__ void join_sink(float sink, float& most, float& total, float (&sum)[kColumns]) {
  const float higher = fmaxf(most, sink), shrink = expf(most - higher);
  total = total * shrink + expf(sink - higher);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) sum[c] *= shrink;
  most = higher;
}

template <class T, int kColumns>
__global__ void forward_kernel(Problem problem, Heads q, Heads k, Heads v, Sinks sinks, Heads out, float* lse) {
  constexpr int R = kRows<kColumns>, kW = kWidth<kColumns>, kT = kTileWidth<kColumns>;
  extern __shared__ float memory[];
  float* q_rows = memory;                              // (kBlockRows, kW)
  float* k_tile = q_rows + kBlockRows<kColumns> * kW;  // (kTile, kT)
  float* v_tile = k_tile + kTile * kT;                 // (kTile, kW)
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t tokens = problem.shape.tokens, size = problem.shape.head_dim;
  const int64_t head = blockIdx.y, kv_head = head / problem.group;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kBlockRows<kColumns>;
  const int64_t last_row = row0 + kBlockRows<kColumns> <= tokens ? row0 + kBlockRows<kColumns> - 1 : tokens - 1;

  load_rows<T, kColumns, kW>(q_rows, kBlockRows<kColumns>, q, row0, head, problem);
  int64_t token[R], oldest[R];
  float most[R], total[R], sum[R][kColumns];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    token[r] = row0 + warp * R + r;
    oldest[r] = token[r] < tokens ? first_key(problem, token[r]) : tokens;
    most[r] = -INFINITY;
    total[r] = 0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sum[r][c] = 0;
  }

  for (int64_t j0 = first_key(problem, row0); j0 <= last_row; j0 += kTile) {
    __syncthreads();
    load_rows<T, kColumns, kT>(k_tile, kTile, k, j0, kv_head, problem);
    load_rows<T, kColumns, kW>(v_tile, kTile, v, j0, kv_head, problem);
    __syncthreads();
    float p[R] = {};
    for (int d = 0; d < size; ++d) {
      const float key = k_tile[lane * kT + d];
#pragma unroll
      for (int r = 0; r < R; ++r) p[r] += q_rows[(warp * R + r) * kW + d] * key;
    }
    const int64_t j = j0 + lane;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const bool visible = token[r] < tokens && j >= oldest[r] && j <= token[r];
      const float score = visible ? capped(problem.shape, p[r]) : -INFINITY;
      const float higher = fmaxf(most[r], warp_max(score));
      const bool any = higher != -INFINITY;
      p[r] = visible ? expf(score - higher) : 0.0f;
      const float shrink = any ? expf(most[r] - higher) : 1.0f;
      total[r] = total[r] * shrink + warp_sum(p[r]);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sum[r][c] *= shrink;
      most[r] = higher;
    }
    for (int i = 0; i < kTile; ++i) {
      float weight[R];
#pragma unroll
      for (int r = 0; r < R; ++r) weight[r] = __shfl_sync(0xFFFFFFFFu, p[r], i);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float value = v_tile[i * kW + lane + 32 * c];
#pragma unroll
        for (int r = 0; r < R; ++r) add_visible(sum[r][c], weight[r], value);
      }
    }
  }

  if (sinks.data) {
    const float sink = sinks.at(head);
#pragma unroll
    for (int r = 0; r < R; ++r) join_sink(sink, most[r], total[r], sum[r]);
  }

#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (token[r] >= tokens) continue;
    write_mean(out.row<T>(token[r], head, size), sum[r], total[r], lane, size);
    if (lane == 0) lse[lse_index(problem, token[r], head)] = most[r] + logf(total[r]);
  }
}

// delta[token * heads + head] = grad_out . out of that head; one warp each.
template <class T>
__global__ void delta_kernel(Problem problem, Heads out, Heads grad_out, float* delta) {
  const int64_t pair = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (pair >= problem.shape.tokens * problem.shape.heads) return;
  const int64_t token = pair / problem.shape.heads, head = pair % problem.shape.heads, size = problem.shape.head_dim;
  const T* o = out.row<const T>(token, head, size);
  const T* d = grad_out.row<const T>(token, head, size);
  float sum = 0;
  for (int64_t c = threadIdx.x % 32; c < size; c += 32) sum += widen(o[c]) * widen(d[c]);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) delta[pair] = sum;
}

template <class T, int kColumns>
__global__ void grad_query_kernel(Problem problem, Heads q, Heads k, Heads v, Heads grad_out, const float* lse,
                                  const float* delta, Heads grad_q) {
  constexpr int R = kRows<kColumns>, kW = kWidth<kColumns>, kT = kTileWidth<kColumns>;
  extern __shared__ float memory[];
  float* q_rows = memory;                                 // (kBlockRows, kW)
  float* grad_rows = q_rows + kBlockRows<kColumns> * kW;  // (kBlockRows, kW)
  float* k_tile = grad_rows + kBlockRows<kColumns> * kW;  // (kTile, kT)
  float* v_tile = k_tile + kTile * kT;                    // (kTile, kT)
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t tokens = problem.shape.tokens, size = problem.shape.head_dim, heads = problem.shape.heads;
  const int64_t head = blockIdx.y, kv_head = head / problem.group;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kBlockRows<kColumns>;
  const int64_t last_row = row0 + kBlockRows<kColumns> <= tokens ? row0 + kBlockRows<kColumns> - 1 : tokens - 1;

  load_rows<T, kColumns, kW>(q_rows, kBlockRows<kColumns>, q, row0, head, problem);
  load_rows<T, kColumns, kW>(grad_rows, kBlockRows<kColumns>, grad_out, row0, head, problem);
  int64_t token[R], oldest[R];
  float row_lse[R], row_delta[R], sum[R][kColumns];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    token[r] = row0 + warp * R + r;
    const bool exists = token[r] < tokens;
    oldest[r] = exists ? first_key(problem, token[r]) : tokens;
    row_lse[r] = exists ? lse[lse_index(problem, token[r], head)] : 0.0f;
    row_delta[r] = exists ? delta[token[r] * heads + head] : 0.0f;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sum[r][c] = 0;
  }

  for (int64_t j0 = first_key(problem, row0); j0 <= last_row; j0 += kTile) {
    __syncthreads();
    load_rows<T, kColumns, kT>(k_tile, kTile, k, j0, kv_head, problem);
    load_rows<T, kColumns, kT>(v_tile, kTile, v, j0, kv_head, problem);
    __syncthreads();
    float score[R] = {}, grad[R] = {};
    for (int d = 0; d < size; ++d) {
      const float key = k_tile[lane * kT + d], value = v_tile[lane * kT + d];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        score[r] += q_rows[(warp * R + r) * kW + d] * key;
        grad[r] += grad_rows[(warp * R + r) * kW + d] * value;
      }
    }
    const int64_t j = j0 + lane;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const bool visible = token[r] < tokens && j >= oldest[r] && j <= token[r];
      const float at = capped(problem.shape, score[r]);
      const float p = visible ? expf(at - row_lse[r]) : 0.0f;
      grad[r] = visible ? p * (grad[r] - row_delta[r]) * problem.shape.scale * score_slope(problem.shape, at) : 0.0f;
    }
    for (int i = 0; i < kTile; ++i) {
      float weight[R];
#pragma unroll
      for (int r = 0; r < R; ++r) weight[r] = __shfl_sync(0xFFFFFFFFu, grad[r], i);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float key = k_tile[i * kT + lane + 32 * c];
#pragma unroll
        for (int r = 0; r < R; ++r) add_visible(sum[r][c], weight[r], key);
      }
    }
  }

#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (token[r] >= tokens) continue;
    write_row(grad_q.row<T>(token[r], head, size), sum[r], lane, size);
  }
}

template <class T, int kColumns>
__global__ void grad_key_kernel(Problem problem, Heads q, Heads k, Heads v, Heads grad_out, const float* lse,
                                const float* delta, Heads grad_k, Heads grad_v) {
  constexpr int R = kRows<kColumns>, kW = kWidth<kColumns>, kT = kTileWidth<kColumns>;
  extern __shared__ float memory[];
  float* k_rows = memory;                              // (kBlockRows, kW)
  float* v_rows = k_rows + kBlockRows<kColumns> * kW;  // (kBlockRows, kW)
  float* q_tile = v_rows + kBlockRows<kColumns> * kW;  // (kTile, kT)
  float* grad_tile = q_tile + kTile * kT;              // (kTile, kT)
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t tokens = problem.shape.tokens, size = problem.shape.head_dim, heads = problem.shape.heads;
  const int64_t kv_head = blockIdx.y;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kBlockRows<kColumns>;
  const int64_t last_row = row0 + kBlockRows<kColumns> <= tokens ? row0 + kBlockRows<kColumns> - 1 : tokens - 1;

  load_rows<T, kColumns, kW>(k_rows, kBlockRows<kColumns>, k, row0, kv_head, problem);
  load_rows<T, kColumns, kW>(v_rows, kBlockRows<kColumns>, v, row0, kv_head, problem);
  int64_t token[R], newest[R];
  float key_sum[R][kColumns], value_sum[R][kColumns];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    token[r] = row0 + warp * R + r;
    newest[r] = token[r] < tokens ? last_query(problem, token[r]) : -1;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) key_sum[r][c] = value_sum[r][c] = 0;
  }

  const int64_t last_seen = last_query(problem, last_row);
  for (int64_t head = kv_head * problem.group; head < (kv_head + 1) * problem.group; ++head) {
    for (int64_t t0 = row0; t0 <= last_seen; t0 += kTile) {
      __syncthreads();
      load_rows<T, kColumns, kT>(q_tile, kTile, q, t0, head, problem);
      load_rows<T, kColumns, kT>(grad_tile, kTile, grad_out, t0, head, problem);
      __syncthreads();
      const int64_t t = t0 + lane;
      const bool exists = t < tokens;
      const float lane_lse = exists ? lse[lse_index(problem, t, head)] : 0.0f;
      const float lane_delta = exists ? delta[t * heads + head] : 0.0f;
      float p[R] = {}, grad[R] = {};
      for (int d = 0; d < size; ++d) {
        const float query = q_tile[lane * kT + d], out = grad_tile[lane * kT + d];
#pragma unroll
        for (int r = 0; r < R; ++r) {
          p[r] += k_rows[(warp * R + r) * kW + d] * query;
          grad[r] += v_rows[(warp * R + r) * kW + d] * out;
        }
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const bool visible = exists && t >= token[r] && t <= newest[r];
        const float at = capped(problem.shape, p[r]);
        p[r] = visible ? expf(at - lane_lse) : 0.0f;
        grad[r] = visible ? p[r] * (grad[r] - lane_delta) * problem.shape.scale * score_slope(problem.shape, at) : 0.0f;
      }
      for (int i = 0; i < kTile; ++i) {
        float weight[R], slope[R];
#pragma unroll
        for (int r = 0; r < R; ++r) {
          weight[r] = __shfl_sync(0xFFFFFFFFu, p[r], i);
          slope[r] = __shfl_sync(0xFFFFFFFFu, grad[r], i);
        }
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const float query = q_tile[i * kT + lane + 32 * c], out = grad_tile[i * kT + lane + 32 * c];
#pragma unroll
          for (int r = 0; r < R; ++r) {
            add_visible(key_sum[r][c], slope[r], query);
            add_visible(value_sum[r][c], weight[r], out);
          }
        }
      }
    }
  }

#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (token[r] >= tokens) continue;
    write_row(grad_k.row<T>(token[r], kv_head, size), key_sum[r], lane, size);
    write_row(grad_v.row<T>(token[r], kv_head, size), value_sum[r], lane, size);
  }
}

Problem problem_of(const AttentionShape& shape, const Documents& documents) {
  ensure(shape.head_dim > 0 && shape.head_dim <= kSimpleHeadDim, "attention takes head sizes up to 512");
  ensure(shape.heads % shape.kv_heads == 0, "query heads are a multiple of key heads");
  ensure(shape.heads < 65536, "attention takes at most 65535 heads");
  return {shape, documents, shape.heads / shape.kv_heads};
}

Heads heads_of(const View& view) { return {view.data, view.row_stride}; }

// Calls body with the number of columns a lane owns.
template <class Body>
void visit_columns(int64_t head_dim, const Body& body) {
  if (head_dim <= 32) return body.template operator()<1>();
  if (head_dim <= 64) return body.template operator()<2>();
  if (head_dim <= 128) return body.template operator()<4>();
  if (head_dim <= 256) return body.template operator()<8>();
  return body.template operator()<16>();
}

template <class Kernel, class... Args>
void launch_heads(Kernel* kernel, int64_t rows, int64_t block_rows, int64_t heads, int64_t floats, cudaStream_t stream,
                  const Args&... args) {
  const int64_t shared = floats * static_cast<int64_t>(sizeof(float));
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  const dim3 grid(grid_size(ceil_div(rows, block_rows)), static_cast<unsigned>(heads));
  kernel<<<grid, 32 * kWarps, static_cast<size_t>(shared), stream>>>(args...);
  check_launch();
}

}  // namespace

void launch(const AttentionForward& args, cudaStream_t stream) {
  if (args.shape.tokens == 0) return;
  const Problem problem = problem_of(args.shape, args.documents);
  visit_elements(args.q.dtype, [&](auto element) {
    using T = decltype(element);
    visit_columns(args.shape.head_dim, [&]<int kColumns>() {
      constexpr int64_t kFloats =
          kBlockRows<kColumns> * kWidth<kColumns> + kTile * (kTileWidth<kColumns> + kWidth<kColumns>);
      launch_heads(forward_kernel<T, kColumns>, args.shape.tokens, kBlockRows<kColumns>, args.shape.heads, kFloats,
                   stream, problem, heads_of(args.q), heads_of(args.k), heads_of(args.v), sinks_of(args.sinks),
                   heads_of(args.out), args.lse);
    });
  });
}

int64_t attention_scratch_bytes(const AttentionShape& shape) {
  return shape.tokens * shape.heads * static_cast<int64_t>(sizeof(float));
}

void launch(const AttentionBackward& args, void* scratch, cudaStream_t stream) {
  if (args.shape.tokens == 0) return;
  const Problem problem = problem_of(args.shape, args.documents);
  float* delta = static_cast<float*>(scratch);
  visit_elements(args.q.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t pairs = args.shape.tokens * args.shape.heads;
    delta_kernel<T><<<grid_size(ceil_div(pairs, kWarps)), 32 * kWarps, 0, stream>>>(problem, heads_of(args.out),
                                                                                    heads_of(args.grad_out), delta);
    check_launch();
    visit_columns(args.shape.head_dim, [&]<int kColumns>() {
      constexpr int64_t kFloats = 2 * (kBlockRows<kColumns> * kWidth<kColumns> + kTile * kTileWidth<kColumns>);
      launch_heads(grad_query_kernel<T, kColumns>, args.shape.tokens, kBlockRows<kColumns>, args.shape.heads, kFloats,
                   stream, problem, heads_of(args.q), heads_of(args.k), heads_of(args.v), heads_of(args.grad_out),
                   args.lse, static_cast<const float*>(delta), heads_of(args.grad_q));
      launch_heads(grad_key_kernel<T, kColumns>, args.shape.tokens, kBlockRows<kColumns>, args.shape.kv_heads, kFloats,
                   stream, problem, heads_of(args.q), heads_of(args.k), heads_of(args.v), heads_of(args.grad_out),
                   args.lse, static_cast<const float*>(delta), heads_of(args.grad_k), heads_of(args.grad_v));
    });
  });
}

}  // namespace megatrain
