// Attention of heads above 256 elements, which cuDNN does not support: bf16 tensor cores, fp32 sums and softmax.
//
// A block works on one tile of one document: kQueries queries of one head (forward, gradient of queries), or kKeys keys
// of one key head with all query heads that read it (gradients of keys and values). It walks over tiles of the other
// side, whose rows are copied to shared memory beside the multiplications. A head is padded to kWidth columns of zeros.
// Sums are in a fixed order, without atomics, so equal calls give equal bits.
//
// Eight warps divide a product: its rows among kRowWarps of them, its columns among the others.
#include <cmath>

#include "megatrain/ops/cuda/attention/heads.cuh"
#include "megatrain/ops/cuda/attention/sinks.cuh"
#include "megatrain/ops/cuda/attention/launch.h"
#include "megatrain/device/cuda/mma.cuh"

namespace megatrain {

namespace {

constexpr int kWidth = 512;          // columns of a head
constexpr int kStride = kWidth + 8;  // of a tile's row: 16 bytes more, so that the rows of a matrix hit all banks
constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kQueries = 64;
constexpr int kKeys = 32;  // in backward; the forward takes kQueries of them
constexpr float kLog2E = 1.4426950408889634f;

// Tile number `slot` of a grid over all documents: the document's tiles begin at slot begin / size + document, which
// leaves room for all of them.
struct TileOfDocument {
  TokenSpan span;
  int64_t begin;  // its first token; at or above span.end: there is no tile
};

__device__ TileOfDocument tile_at(const Documents& documents, int64_t slot, int64_t size) {
  int64_t low = 0, high = documents.count;  // first slot of `low` <= slot < that of `high`
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (span_of(documents, middle).begin / size + middle <= slot) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const TokenSpan span = span_of(documents, low);
  return {span, span.begin + (slot - (span.begin / size + low)) * size};
}

int64_t tile_slots(const AttentionShape& shape, const Documents& documents, int64_t size) {
  return shape.tokens / size + documents.count;
}

// The first key that a query of the tile sees.
__device__ int64_t first_key_of(const AttentionShape& shape, const TileOfDocument& tile) {
  const int64_t oldest = tile.begin - shape.window + 1;
  return shape.window > 0 && oldest > tile.span.begin ? oldest : tile.span.begin;
}

// Starts the copy of kRows rows of a head; rows outside of [., end) and columns beyond the head become zero.
template <int kRows>
__device__ void copy_rows(Bf16* tile, const AttentionHeads& from, int64_t first, int64_t end, int64_t head,
                          int64_t size) {
  constexpr int kPacks = kWidth / 8;
  for (int i = threadIdx.x; i < kRows * kPacks; i += kThreads) {
    const int row = i / kPacks, column = i % kPacks * 8;
    const bool exists = first + row < end && column < size;
    const Bf16* at = from.row<const Bf16>(exists ? first + row : end - 1, head, size) + (exists ? column : 0);
    copy_async(tile + row * kStride + column, at, exists);
  }
}

__device__ bool sees(const AttentionShape& shape, int64_t query, int64_t key) {
  return key <= query && (shape.window == 0 || query - key < shape.window);
}

// sum[j] += rows [row, row + 16) of `left` times rows [column + 8 j, + 8) of `right`, over all columns of both.
template <int kTiles>
__device__ void multiply_rows(float (&sum)[kTiles][4], const Bf16* left, int row, const Bf16* right, int column) {
#pragma unroll 4
  for (int k = 0; k < kWidth; k += 16) {
    uint32_t a[4], b[4];
    load_left(a, left, kStride, row, k);
#pragma unroll
    for (int j = 0; j < kTiles; j += 2) {
      load_right_of_rows(b, right, kStride, column + 8 * j, k);
      multiply_add(sum[j], a, b[0], b[1]);
      multiply_add(sum[j + 1], a, b[2], b[3]);
    }
  }
}

// sum[j] += rows [row, row + 16) of `left` (., stride), over kDepth columns, times columns [column + 8 j, + 8) of
// `right` (kDepth, kStride).
template <int kDepth, int kTiles>
__device__ void multiply_columns(float (&sum)[kTiles][4], const Bf16* left, int stride, int row, const Bf16* right,
                                 int column) {
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    uint32_t a[4], b[4];
    load_left(a, left, stride, row, k);
#pragma unroll
    for (int j = 0; j < kTiles; j += 2) {
      load_right(b, right, kStride, k, column + 8 * j);
      multiply_add(sum[j], a, b[0], b[1]);
      multiply_add(sum[j + 1], a, b[2], b[3]);
    }
  }
}

// The row, relative to a fragment's first one, and the column of element e of result j.
__device__ int fragment_row(int e) { return threadIdx.x % 32 / 4 + e / 2 * 8; }
__device__ int fragment_column(int j, int e) { return 8 * j + threadIdx.x % 4 * 2 + e % 2; }

// Writes a warp's results, rows [row, row + 16) of a tile that starts at token `first`.
template <int kTiles>
__device__ void write_rows(const AttentionHeads& to, float (&sum)[kTiles][4], const float (&factor)[2], int64_t first,
                           int64_t end, int64_t head, int64_t size, int column) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t token = first + fragment_row(2 * half);
    if (token >= end) continue;
    Bf16* row = to.row<Bf16>(token, head, size);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int at = column + fragment_column(j, 0);
      if (at >= size) continue;
      *reinterpret_cast<uint32_t*>(row + at) =
          pack_pair(sum[j][2 * half] * factor[half], sum[j][2 * half + 1] * factor[half]);
    }
  }
}

// Over the four lanes that hold a row of a result.
__device__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
__device__ float row_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

constexpr int kWeightStride = kQueries + 8;  // of a row of probabilities

struct ForwardMemory {
  Bf16 q[kQueries * kStride], k[kQueries * kStride], v[kQueries * kStride];
  Bf16 weights[kQueries * kWeightStride];
  float row[2][kQueries];  // of the two warps that share rows
};

// The softmax over the keys so far of the two rows of a lane, in powers of 2.
struct RowSoftmax {
  float most[2] = {-INFINITY, -INFINITY}, total[2] = {};
};

constexpr int kForwardScores = kQueries / 2 / 8;  // results of 8 columns that a warp has of a tile of scores

// From the scores of a tile to its weights in shared memory. Returns the factors for the sums so far.
__device__ void weigh(ForwardMemory& m, RowSoftmax& softmax, float (&score)[kForwardScores][4], int row0, int part,
                      float (&shrink)[2]) {
  float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int j = 0; j < kForwardScores; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) top[e / 2] = fmaxf(top[e / 2], score[j][e]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    top[half] = row_max(top[half]);
    if (threadIdx.x % 4 == 0) m.row[part][row0 + fragment_row(2 * half)] = top[half];
  }
  __syncthreads();
  float base[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + fragment_row(2 * half);
    const float higher = fmaxf(softmax.most[half], fmaxf(m.row[0][row], m.row[1][row]));
    base[half] = higher == -INFINITY ? 0.0f : higher;
    shrink[half] = exp2f(softmax.most[half] - base[half]);
    softmax.most[half] = higher;
    softmax.total[half] *= shrink[half];
  }
#pragma unroll
  for (int j = 0; j < kForwardScores; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      score[j][e] = exp2f(score[j][e] - base[e / 2]);
      softmax.total[e / 2] += score[j][e];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Bf16* at =
          m.weights + (row0 + fragment_row(2 * half)) * kWeightStride + part * (kQueries / 2) + fragment_column(j, 0);
      *reinterpret_cast<uint32_t*>(at) = pack_pair(score[j][2 * half], score[j][2 * half + 1]);
    }
  }
}

// Four warps divide the rows, two the columns of scores and outputs.
__global__ __launch_bounds__(kThreads, 1) void wide_forward_kernel(AttentionProblem problem, AttentionHeads q,
                                                                   AttentionHeads k, AttentionHeads v,
                                                                   AttentionHeads out, float* lse) {
  extern __shared__ __align__(16) unsigned char shared[];
  ForwardMemory& m = *reinterpret_cast<ForwardMemory*>(shared);
  const AttentionShape& shape = problem.shape;
  const int64_t head = blockIdx.y, kv_head = head / problem.group, size = shape.head_dim;
  const TileOfDocument tile = tile_at(problem.documents, gridDim.x - 1 - blockIdx.x, kQueries);
  const int64_t first = tile.begin, end = tile.span.end;
  if (first >= end) return;
  const int warp = threadIdx.x / 32, row0 = warp % 4 * 16, part = warp / 4;
  const int64_t last = first + kQueries < end ? first + kQueries : end;  // behind the last query
  const float scale = shape.scale * kLog2E;

  int64_t key = first_key_of(shape, tile);
  copy_rows<kQueries>(m.q, q, first, end, head, size);
  copy_rows<kQueries>(m.k, k, key, last, kv_head, size);
  commit_copies();

  constexpr int kOutTiles = kWidth / 2 / 8;
  float sum[kOutTiles][4] = {};
  RowSoftmax softmax;
  for (; key < last; key += kQueries) {
    wait_copies<0>();
    __syncthreads();
    copy_rows<kQueries>(m.v, v, key, last, kv_head, size);
    commit_copies();
    float score[kForwardScores][4] = {}, shrink[2];
    multiply_rows(score, m.q, row0, m.k, part * (kQueries / 2));
#pragma unroll
    for (int j = 0; j < kForwardScores; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t query = first + row0 + fragment_row(e), at = key + part * (kQueries / 2) + fragment_column(j, e);
        score[j][e] = query < end && sees(shape, query, at) ? score[j][e] * scale : -INFINITY;
      }
    }
    weigh(m, softmax, score, row0, part, shrink);
    wait_copies<0>();
    __syncthreads();
    if (key + kQueries < last) copy_rows<kQueries>(m.k, k, key + kQueries, last, kv_head, size);
    commit_copies();
#pragma unroll
    for (int j = 0; j < kOutTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[j][e] *= shrink[e / 2];
    }
    multiply_columns<kQueries>(sum, m.weights, kWeightStride, row0, m.v, part * (kWidth / 2));
  }

  __syncthreads();
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = row_sum(softmax.total[half]);
    if (threadIdx.x % 4 == 0) m.row[part][row0 + fragment_row(2 * half)] = total;
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + fragment_row(2 * half);
    const float whole = m.row[0][row] + m.row[1][row];
    factor[half] = 1.0f / whole;
    if (part == 0 && threadIdx.x % 4 == 0 && first + row < end)
      lse[lse_place(problem.documents, shape.heads, first + row, head)] = (softmax.most[half] + log2f(whole)) / kLog2E;
  }
  write_rows(out, sum, factor, first + row0, end, head, size, part * (kWidth / 2));
}

// delta = <out, grad_out> of every token and head: one warp each.
__global__ void wide_delta_kernel(AttentionShape shape, AttentionHeads out, AttentionHeads grad_out, float* delta) {
  const int64_t pair = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (pair >= shape.tokens * shape.heads) return;
  const int64_t token = pair / shape.heads, head = pair % shape.heads;
  const Bf16* o = out.row<const Bf16>(token, head, shape.head_dim);
  const Bf16* d = grad_out.row<const Bf16>(token, head, shape.head_dim);
  float sum = 0;
  for (int64_t c = threadIdx.x % 32 * 8; c < shape.head_dim; c += 32 * 8) {
    float a[8], b[8];
    load<Bf16, 8>(o + c, a);
    load<Bf16, 8>(d + c, b);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += a[j] * b[j];
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) delta[pair] = sum;
}

// The softmax's probability of a score and the gradient of the score, given that of the probability.
struct ScoreGradient {
  float weight, grad;
};
__device__ ScoreGradient score_gradient(bool visible, float product, float grad, float scale, float lse, float delta) {
  if (!visible) return {0.0f, 0.0f};
  const float weight = exp2f((product * scale - lse) * kLog2E);
  return {weight, weight * (grad - delta) * scale};
}

constexpr int kGradStride = kKeys + 8;  // of a row of gradients of scores, (queries, keys)

struct QueryMemory {
  Bf16 q[kQueries * kStride], grad_out[kQueries * kStride];
  Bf16 k[kKeys * kStride], v[kKeys * kStride];
  Bf16 grad_scores[kQueries * kGradStride];
};

// Four warps divide the queries, two the columns of scores and gradients.
__global__ __launch_bounds__(kThreads, 1) void wide_grad_query_kernel(AttentionProblem problem, AttentionHeads q,
                                                                      AttentionHeads k, AttentionHeads v,
                                                                      AttentionHeads grad_out, const float* lse,
                                                                      const float* delta, AttentionHeads grad_q) {
  extern __shared__ __align__(16) unsigned char shared[];
  QueryMemory& m = *reinterpret_cast<QueryMemory*>(shared);
  const AttentionShape& shape = problem.shape;
  const int64_t head = blockIdx.y, kv_head = head / problem.group, size = shape.head_dim;
  const TileOfDocument tile = tile_at(problem.documents, gridDim.x - 1 - blockIdx.x, kQueries);
  const int64_t first = tile.begin, end = tile.span.end;
  if (first >= end) return;
  const int warp = threadIdx.x / 32, row0 = warp % 4 * 16, part = warp / 4;
  const int64_t last = first + kQueries < end ? first + kQueries : end;

  int64_t key = first_key_of(shape, tile);
  copy_rows<kQueries>(m.q, q, first, end, head, size);
  copy_rows<kQueries>(m.grad_out, grad_out, first, end, head, size);
  copy_rows<kKeys>(m.v, v, key, last, kv_head, size);
  commit_copies();
  copy_rows<kKeys>(m.k, k, key, last, kv_head, size);
  commit_copies();
  float row_lse[2], row_delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t token = first + row0 + fragment_row(2 * half);
    row_lse[half] = token < end ? lse[lse_place(problem.documents, shape.heads, token, head)] : 0.0f;
    row_delta[half] = token < end ? delta[token * shape.heads + head] : 0.0f;
  }

  constexpr int kOutTiles = kWidth / 2 / 8, kScoreTiles = kKeys / 2 / 8;
  float sum[kOutTiles][4] = {};
  for (; key < last; key += kKeys) {
    const bool more = key + kKeys < last;
    float grad[kScoreTiles][4] = {}, score[kScoreTiles][4] = {};
    wait_copies<1>();
    __syncthreads();
    multiply_rows(grad, m.grad_out, row0, m.v, part * (kKeys / 2));
    wait_copies<0>();
    __syncthreads();
    if (more) copy_rows<kKeys>(m.v, v, key + kKeys, last, kv_head, size);
    commit_copies();
    multiply_rows(score, m.q, row0, m.k, part * (kKeys / 2));
#pragma unroll
    for (int j = 0; j < kScoreTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t query = first + row0 + fragment_row(e), at = key + part * (kKeys / 2) + fragment_column(j, e);
        const bool visible = query < end && sees(shape, query, at);
        grad[j][e] =
            score_gradient(visible, score[j][e], grad[j][e], shape.scale, row_lse[e / 2], row_delta[e / 2]).grad;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Bf16* at =
            m.grad_scores + (row0 + fragment_row(2 * half)) * kGradStride + part * (kKeys / 2) + fragment_column(j, 0);
        *reinterpret_cast<uint32_t*>(at) = pack_pair(grad[j][2 * half], grad[j][2 * half + 1]);
      }
    }
    __syncthreads();
    multiply_columns<kKeys>(sum, m.grad_scores, kGradStride, row0, m.k, part * (kWidth / 2));
    __syncthreads();
    if (more) copy_rows<kKeys>(m.k, k, key + kKeys, last, kv_head, size);
    commit_copies();
  }
  write_rows(grad_q, sum, {1.0f, 1.0f}, first + row0, end, head, size, part * (kWidth / 2));
}

struct KeyMemory {
  Bf16 k[kKeys * kStride], v[kKeys * kStride];
  Bf16 q[kQueries * kStride], grad_out[kQueries * kStride];
  Bf16 weights[kKeys * kWeightStride], grad_scores[kKeys * kWeightStride];  // (keys, queries)
  float lse[kQueries], delta[kQueries];
};

// The tiles of queries that a tile of keys meets: of every query head in turn, from the first query that sees a key.
struct QueryWalk {
  int64_t head, query;  // the first token of the tile
};

constexpr int kKeyScores = kQueries / 4 / 8;  // results of 8 columns that a warp has of a tile of scores

// From scores, and gradients of weights, of the keys from keys.begin on to weights and gradients of scores in shared
// memory.
__device__ void weigh_keys(KeyMemory& m, const AttentionShape& shape, float (&score)[kKeyScores][4],
                           float (&grad)[kKeyScores][4], TokenSpan keys, int64_t first_query, int row0, int part) {
#pragma unroll
  for (int j = 0; j < kKeyScores; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = part * (kQueries / 4) + fragment_column(j, e);
      const int64_t key = keys.begin + row0 + fragment_row(e), query = first_query + column;
      const bool visible = query < keys.end && key < keys.end && sees(shape, query, key);
      const ScoreGradient found =
          score_gradient(visible, score[j][e], grad[j][e], shape.scale, m.lse[column], m.delta[column]);
      score[j][e] = found.weight;
      grad[j][e] = found.grad;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int to = (row0 + fragment_row(2 * half)) * kWeightStride + part * (kQueries / 4) + fragment_column(j, 0);
      *reinterpret_cast<uint32_t*>(m.weights + to) = pack_pair(score[j][2 * half], score[j][2 * half + 1]);
      *reinterpret_cast<uint32_t*>(m.grad_scores + to) = pack_pair(grad[j][2 * half], grad[j][2 * half + 1]);
    }
  }
}

// Two warps divide the keys, four the columns of scores and gradients.
__global__ __launch_bounds__(kThreads, 1) void wide_grad_key_kernel(AttentionProblem problem, AttentionHeads q,
                                                                    AttentionHeads k, AttentionHeads v,
                                                                    AttentionHeads grad_out, const float* lse,
                                                                    const float* delta, AttentionHeads grad_k,
                                                                    AttentionHeads grad_v) {
  extern __shared__ __align__(16) unsigned char shared[];
  KeyMemory& m = *reinterpret_cast<KeyMemory*>(shared);
  const AttentionShape& shape = problem.shape;
  const int64_t kv_head = blockIdx.y, size = shape.head_dim, last_head = (kv_head + 1) * problem.group;
  const TileOfDocument tile = tile_at(problem.documents, blockIdx.x, kKeys);
  const int64_t first = tile.begin, end = tile.span.end;
  if (first >= end) return;
  const int warp = threadIdx.x / 32, row0 = warp % 2 * 16, part = warp / 2;
  const int64_t last_key = first + kKeys < end ? first + kKeys : end;
  int64_t behind = end;  // behind the last query that sees one of the keys
  if (shape.window > 0 && last_key - 1 + shape.window < behind) behind = last_key - 1 + shape.window;

  const auto next_of = [&](QueryWalk at) {
    at.query += kQueries;
    return at.query < behind ? at : QueryWalk{at.head + 1, first};
  };
  const auto take_rows = [&](const QueryWalk& at) {  // of softmax and delta
    if (threadIdx.x >= kQueries) return;
    const int64_t token = at.query + threadIdx.x;
    m.lse[threadIdx.x] = token < end ? lse[lse_place(problem.documents, shape.heads, token, at.head)] : 0.0f;
    m.delta[threadIdx.x] = token < end ? delta[token * shape.heads + at.head] : 0.0f;
  };
  QueryWalk at{kv_head * problem.group, first};
  copy_rows<kKeys>(m.k, k, first, end, kv_head, size);
  copy_rows<kKeys>(m.v, v, first, end, kv_head, size);
  copy_rows<kQueries>(m.grad_out, grad_out, at.query, end, at.head, size);
  commit_copies();
  copy_rows<kQueries>(m.q, q, at.query, end, at.head, size);
  commit_copies();
  take_rows(at);

  constexpr int kOutTiles = kWidth / 4 / 8;
  float sum_k[kOutTiles][4] = {}, sum_v[kOutTiles][4] = {};
  while (at.head < last_head) {
    const QueryWalk next = next_of(at);
    const bool more = next.head < last_head;
    float grad[kKeyScores][4] = {}, score[kKeyScores][4] = {};
    wait_copies<1>();
    __syncthreads();
    multiply_rows(grad, m.v, row0, m.grad_out, part * (kQueries / 4));
    wait_copies<0>();
    __syncthreads();
    multiply_rows(score, m.k, row0, m.q, part * (kQueries / 4));
    weigh_keys(m, shape, score, grad, {first, end}, at.query, row0, part);
    __syncthreads();
    multiply_columns<kQueries>(sum_v, m.weights, kWeightStride, row0, m.grad_out, part * (kWidth / 4));
    __syncthreads();
    if (more) {
      copy_rows<kQueries>(m.grad_out, grad_out, next.query, end, next.head, size);
      take_rows(next);
    }
    commit_copies();
    multiply_columns<kQueries>(sum_k, m.grad_scores, kWeightStride, row0, m.q, part * (kWidth / 4));
    __syncthreads();
    if (more) copy_rows<kQueries>(m.q, q, next.query, end, next.head, size);
    commit_copies();
    at = next;
  }
  write_rows(grad_k, sum_k, {1.0f, 1.0f}, first + row0, end, kv_head, size, part * (kWidth / 4));
  write_rows(grad_v, sum_v, {1.0f, 1.0f}, first + row0, end, kv_head, size, part * (kWidth / 4));
}

// Whether rows can be copied in packs of 16 bytes.
bool packed_heads(const View& view, const AttentionShape& shape) {
  return view.dtype == DType::bf16 && packs(view, 8) && shape.head_dim % 8 == 0;
}

template <class Memory, class Kernel, class... Args>
void launch_tiles(Kernel* kernel, const AttentionProblem& problem, int64_t size, int64_t heads, cudaStream_t stream,
                  const Args&... args) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Memory)));
  const dim3 grid(grid_size(tile_slots(problem.shape, problem.documents, size)), static_cast<unsigned>(heads));
  kernel<<<grid, kThreads, sizeof(Memory), stream>>>(problem, args...);
  check_launch();
}

}  // namespace

bool takes_wide(const AttentionForward& args) {
  const AttentionShape& shape = args.shape;
  bool packed = shape.tokens > 0 && shape.cap == 0 && shape.head_dim > kLongestCutHead && shape.head_dim <= kWidth;
  for (const View* view : {&args.q, &args.k, &args.v, &args.out}) packed = packed && packed_heads(*view, shape);
  return packed;
}

bool takes_wide(const AttentionBackward& args) {
  const AttentionShape& shape = args.shape;
  bool packed = shape.tokens > 0 && shape.cap == 0 && shape.head_dim > kLongestCutHead && shape.head_dim <= kWidth;
  for (const View* view :
       {&args.q, &args.k, &args.v, &args.out, &args.grad_out, &args.grad_q, &args.grad_k, &args.grad_v})
    packed = packed && packed_heads(*view, shape);
  return packed;
}

void launch_wide(const AttentionForward& args, cudaStream_t stream) {
  const AttentionProblem problem{args.shape, args.documents, args.shape.heads / args.shape.kv_heads};
  launch_tiles<ForwardMemory>(wide_forward_kernel, problem, kQueries, args.shape.heads, stream, heads_of(args.q),
                              heads_of(args.k), heads_of(args.v), heads_of(args.out), args.lse);
}

void launch_wide(const AttentionBackward& args, void* scratch, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  const AttentionProblem problem{shape, args.documents, shape.heads / shape.kv_heads};
  float* delta = static_cast<float*>(scratch);
  wide_delta_kernel<<<grid_size(ceil_div(shape.tokens * shape.heads, kWarps)), kThreads, 0, stream>>>(
      shape, heads_of(args.out), heads_of(args.grad_out), delta);
  check_launch();
  launch_tiles<QueryMemory>(wide_grad_query_kernel, problem, kQueries, shape.heads, stream, heads_of(args.q),
                            heads_of(args.k), heads_of(args.v), heads_of(args.grad_out), args.lse,
                            static_cast<const float*>(delta), heads_of(args.grad_q));
  launch_tiles<KeyMemory>(wide_grad_key_kernel, problem, kKeys, shape.kv_heads, stream, heads_of(args.q),
                          heads_of(args.k), heads_of(args.v), heads_of(args.grad_out), args.lse,
                          static_cast<const float*>(delta), heads_of(args.grad_k), heads_of(args.grad_v));
}

}  // namespace megatrain
