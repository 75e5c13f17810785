#include "megatrain/ops/attention.h"

#include <cmath>
#include <limits>

#include "megatrain/ops/cpu/exp.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

constexpr int64_t kQueryTile = 64;
constexpr int64_t kKeyTile = 128;

// Tokens [begin, begin + size) of the micro-batch; queries and keys below count from `begin`.
struct Document {
  int64_t begin;
  int64_t size;
};

// Keys of a tile that a query sees, counted from the tile's first key.
struct Range {
  int64_t begin;
  int64_t end;
};

Document document_at(const Documents& documents, int64_t index) {
  return {documents.begin[index], documents.begin[index + 1] - documents.begin[index]};
}

Range visible(const AttentionShape& shape, int64_t query, int64_t first_key, int64_t keys) {
  const int64_t earliest = shape.window > 0 ? query - shape.window + 1 : 0;
  const int64_t begin = std::max<int64_t>(0, earliest - first_key);
  return {begin, std::max(begin, std::min(keys, query + 1 - first_key))};
}

// Calls body(first_key, keys) for the tiles of keys that any of queries [query, query + queries) sees. Tiles start at
// multiples of kKeyTile in the document, so they do not depend on where the document is in the micro-batch.
template <class Body>
void for_key_tiles(const AttentionShape& shape, int64_t query, int64_t queries, const Body& body) {
  const int64_t earliest = shape.window > 0 ? std::max<int64_t>(0, query - shape.window + 1) : 0;
  const int64_t end = query + queries;
  for (int64_t key = earliest / kKeyTile * kKeyTile; key < end; key += kKeyTile) {
    body(key, std::min(kKeyTile, end - key));
  }
}

void check(const AttentionShape& shape, const Documents& documents) {
  ensure(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "query heads share key heads evenly");
  ensure(documents.begin[0] == 0 && documents.begin[documents.count] == shape.tokens, "documents tile the micro-batch");
}

// Some queries of one head of one document, and the first rows of these queries and of the document's keys.
struct ForwardTile {
  int64_t head;
  int64_t query;  // first of the tile, relative to its document
  int64_t queries;
  int64_t query_row;  // in q and out
  int64_t key_row;    // in k and v: the document's first row
};

void cap_scores(float cap, float* scores, int64_t count) {
  for (int64_t j = 0; j < count; ++j) scores[j] = cap * std::tanh(scores[j] / cap);
}

// The slope of a capped score.
float score_slope(float cap, float score) { return cap > 0 ? 1.0f - score / cap * (score / cap) : 1.0f; }

float sink_of(const View& sinks, int64_t head) {
  float widened = 0;
  return *read(sinks, 0, head, 1, &widened);
}

// The tensors that are read and written; `lse` may be null.
struct ForwardViews {
  View q, k, v, sinks, out;
  float* lse;
};

void forward_tile(const Context& context, const AttentionShape& shape, const ForwardViews& args,
                  const ForwardTile& tile) {
  thread_local std::vector<float> q_scratch, k_scratch, v_scratch, score_scratch, out_scratch;
  const int64_t dim = shape.head_dim;
  const int64_t queries = tile.queries, first_row = tile.query_row;
  const int64_t q_col = tile.head * dim;
  const int64_t kv_col = tile.head / (shape.heads / shape.kv_heads) * dim;

  const Tile q = read_tile(args.q, first_row, queries, 0, q_col, dim, q_scratch);
  float* scores = grown(score_scratch, kQueryTile * kKeyTile);
  float* out = grown(out_scratch, kQueryTile * dim);
  std::fill(out, out + queries * dim, 0.0f);
  std::array<float, kQueryTile> maximum;
  std::array<double, kQueryTile> sum;
  if (args.sinks.empty()) {
    maximum.fill(-std::numeric_limits<float>::infinity());
    sum.fill(0);
  } else {  // the sink is the first score; it adds nothing to the output
    maximum.fill(sink_of(args.sinks, tile.head));
    sum.fill(1);
  }

  for_key_tiles(shape, tile.query, queries, [&](int64_t key, int64_t keys) {
    const Tile k = read_tile(args.k, tile.key_row + key, keys, 0, kv_col, dim, k_scratch);
    const Tile v = read_tile(args.v, tile.key_row + key, keys, 0, kv_col, dim, v_scratch);
    context.matmul({.m = queries,
                    .n = keys,
                    .k = dim,
                    .a = q,
                    .b = k,
                    .transpose_b = true,
                    .c = scores,
                    .c_stride = keys,
                    .alpha = shape.scale});
    for (int64_t i = 0; i < queries; ++i) {
      float* row = scores + i * keys;
      const Range range = visible(shape, tile.query + i, key, keys);
      std::fill(row, row + std::min(range.begin, keys), 0.0f);
      std::fill(row + std::min(range.end, keys), row + keys, 0.0f);
      if (range.begin >= range.end) continue;
      if (shape.cap > 0) cap_scores(shape.cap, row + range.begin, range.end - range.begin);
      const float top = std::max(maximum[i], largest_of(row + range.begin, range.end - range.begin));
      for (int64_t j = range.begin; j < range.end; ++j) row[j] = exp_f32(row[j] - top);
      const float keep = exp_f32(maximum[i] - top);
      sum[i] = sum[i] * static_cast<double>(keep) +
               sum_of(range.end - range.begin, [&](int64_t j) { return static_cast<double>(row[range.begin + j]); });
      maximum[i] = top;
      if (keep != 1.0f) {
        for (int64_t d = 0; d < dim; ++d) out[i * dim + d] *= keep;
      }
    }
    context.matmul({.m = queries,
                    .n = dim,
                    .k = keys,
                    .a = {scores, keys},
                    .b = v,
                    .c = out,
                    .c_stride = dim,
                    .accumulate = true});
  });

  for (int64_t i = 0; i < queries; ++i) {
    const float inverse = static_cast<float>(1.0 / sum[i]);
    for (int64_t d = 0; d < dim; ++d) out[i * dim + d] *= inverse;
    narrow(out + i * dim, args.out, first_row + i, q_col, dim);
    if (!args.lse) continue;
    const double lse = std::log(sum[i]) + static_cast<double>(maximum[i]);
    args.lse[tile.head * shape.tokens + first_row + i] = static_cast<float>(lse);
  }
}

// The last tiles see the most keys, so they run first. Then all threads finish at about the same time.
void run_tiles(const Context& context, const AttentionShape& shape, const ForwardViews& views,
               const std::vector<ForwardTile>& tiles) {
  const int64_t count = static_cast<int64_t>(tiles.size());
  context.team.parallel_for(count, [&](int64_t index) {
    forward_tile(context, shape, views, tiles[static_cast<size_t>(count - 1 - index)]);
  });
}

double dot(const float* a, const float* b, int64_t size) {
  return sum_of(size, [&](int64_t i) { return static_cast<double>(a[i]) * b[i]; });
}

// Some queries of one head.
struct QueryTile {
  int64_t query;  // first of the tile, relative to its document
  int64_t queries;
  Tile q, grad_out;
  const float* lse;
  std::array<float, kQueryTile> delta;  // out . grad_out
};

struct KeyTile {
  int64_t key;  // first of the tile, relative to its document
  int64_t keys;
  Tile k, v;
};

// Buffers of the backward of one key head of one document.
struct BackwardMemory {
  float* weights;     // (queries, keys) softmax(q k^T)
  float* grad_score;  // (queries, keys)
  float* grad_q;      // (queries, dim)
  float* grad_k;      // (document.size, dim)
  float* grad_v;      // (document.size, dim)
};

// Turns scores into weights, and the weights' gradients into the scores'. Both are 0 where a query does not see a key.
void softmax_backward(const AttentionShape& shape, const QueryTile& q, const KeyTile& k, const BackwardMemory& memory) {
  for (int64_t i = 0; i < q.queries; ++i) {
    float* p = memory.weights + i * k.keys;
    float* s = memory.grad_score + i * k.keys;
    const Range range = visible(shape, q.query + i, k.key, k.keys);
    for (float* row : {p, s}) {
      std::fill(row, row + std::min(range.begin, k.keys), 0.0f);
      std::fill(row + std::min(range.end, k.keys), row + k.keys, 0.0f);
    }
    if (shape.cap > 0) cap_scores(shape.cap, p + range.begin, range.end - range.begin);
    for (int64_t j = range.begin; j < range.end; ++j) {
      const float slope = score_slope(shape.cap, p[j]);
      p[j] = exp_f32(p[j] - q.lse[i]);
      s[j] = p[j] * (s[j] - q.delta[i]) * shape.scale * slope;
    }
  }
}

// Adds the contributions of these queries and keys to grad_q, grad_k and grad_v.
void backward_tile(const Context& context, const AttentionShape& shape, const QueryTile& q, const KeyTile& k,
                   const BackwardMemory& memory) {
  const int64_t dim = shape.head_dim, queries = q.queries, keys = k.keys;
  context.matmul({.m = queries,
                  .n = keys,
                  .k = dim,
                  .a = q.q,
                  .b = k.k,
                  .transpose_b = true,
                  .c = memory.weights,
                  .c_stride = keys,
                  .alpha = shape.scale});
  context.matmul({.m = queries,
                  .n = keys,
                  .k = dim,
                  .a = q.grad_out,
                  .b = k.v,
                  .transpose_b = true,
                  .c = memory.grad_score,
                  .c_stride = keys});
  softmax_backward(shape, q, k, memory);
  const Tile p{memory.weights, keys};
  const Tile s{memory.grad_score, keys};
  context.matmul({.m = keys,
                  .n = dim,
                  .k = queries,
                  .a = p,
                  .transpose_a = true,
                  .b = q.grad_out,
                  .c = memory.grad_v + k.key * dim,
                  .c_stride = dim,
                  .accumulate = true});
  context.matmul({.m = keys,
                  .n = dim,
                  .k = queries,
                  .a = s,
                  .transpose_a = true,
                  .b = q.q,
                  .c = memory.grad_k + k.key * dim,
                  .c_stride = dim,
                  .accumulate = true});
  context.matmul(
      {.m = queries, .n = dim, .k = keys, .a = s, .b = k.k, .c = memory.grad_q, .c_stride = dim, .accumulate = true});
}

// Writes grad_q for one tile of queries of one head, starting at `query`, and adds to grad_k and grad_v.
void backward_queries(const Context& context, const AttentionBackward& args, const Document& document, int64_t head,
                      int64_t query, const BackwardMemory& memory) {
  thread_local std::vector<float> q_scratch, k_scratch, v_scratch, g_scratch, row_scratch;
  const AttentionShape& shape = args.shape;
  const int64_t dim = shape.head_dim;
  const int64_t kv_col = head / (shape.heads / shape.kv_heads) * dim;
  const int64_t queries = std::min(kQueryTile, document.size - query);
  const int64_t first_row = document.begin + query;
  QueryTile tile{.query = query,
                 .queries = queries,
                 .q = read_tile(args.q, first_row, queries, 0, head * dim, dim, q_scratch),
                 .grad_out = read_tile(args.grad_out, first_row, queries, 0, head * dim, dim, g_scratch),
                 .lse = args.lse + head * shape.tokens + first_row,
                 .delta = {}};
  float* out_row = grown(row_scratch, dim);
  for (int64_t i = 0; i < queries; ++i) {
    const float* out = read(args.out, first_row + i, head * dim, dim, out_row);
    tile.delta[i] = static_cast<float>(dot(out, tile.grad_out.data + i * tile.grad_out.stride, dim));
  }
  std::fill(memory.grad_q, memory.grad_q + queries * dim, 0.0f);
  for_key_tiles(shape, query, queries, [&](int64_t key, int64_t keys) {
    const KeyTile seen{.key = key,
                       .keys = keys,
                       .k = read_tile(args.k, document.begin + key, keys, 0, kv_col, dim, k_scratch),
                       .v = read_tile(args.v, document.begin + key, keys, 0, kv_col, dim, v_scratch)};
    backward_tile(context, shape, tile, seen, memory);
  });
  for (int64_t i = 0; i < queries; ++i) narrow(memory.grad_q + i * dim, args.grad_q, first_row + i, head * dim, dim);
}

// One key head of one document, with all the query heads that read it. It is the only owner of its grad_k and grad_v,
// which it sums over query heads, then query tiles, in order.
void backward_document(const Context& context, const AttentionBackward& args, const Document& document,
                       int64_t kv_head) {
  thread_local std::vector<float> p_scratch, s_scratch, gq_scratch, gk_scratch, gv_scratch;
  const int64_t dim = args.shape.head_dim;
  const int64_t group = args.shape.heads / args.shape.kv_heads;
  const BackwardMemory memory{.weights = grown(p_scratch, kQueryTile * kKeyTile),
                              .grad_score = grown(s_scratch, kQueryTile * kKeyTile),
                              .grad_q = grown(gq_scratch, kQueryTile * dim),
                              .grad_k = grown(gk_scratch, document.size * dim),
                              .grad_v = grown(gv_scratch, document.size * dim)};
  std::fill(memory.grad_k, memory.grad_k + document.size * dim, 0.0f);
  std::fill(memory.grad_v, memory.grad_v + document.size * dim, 0.0f);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int64_t query = 0; query < document.size; query += kQueryTile)
      backward_queries(context, args, document, head, query, memory);
  }
  for (int64_t i = 0; i < document.size; ++i) {
    narrow(memory.grad_k + i * dim, args.grad_k, document.begin + i, kv_head * dim, dim);
    narrow(memory.grad_v + i * dim, args.grad_v, document.begin + i, kv_head * dim, dim);
  }
}

// A sink's probability times the gradient of its score, which is -<out, grad_out>, as a sink has no value.
void sink_gradient(const Context& context, const AttentionBackward& args) {
  ensure(args.grad_sinks.dtype == DType::f32, "a gradient of sinks is fp32");
  const int64_t dim = args.shape.head_dim, tokens = args.shape.tokens;
  context.team.parallel_for(args.shape.heads, [&](int64_t head) {
    thread_local std::vector<float> out_scratch, grad_scratch;
    const float sink = sink_of(args.sinks, head);
    const float* lse = args.lse + head * tokens;
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      const float* out = read(args.out, t, head * dim, dim, grown(out_scratch, dim));
      const float* grad = read(args.grad_out, t, head * dim, dim, grown(grad_scratch, dim));
      sum -= static_cast<double>(exp_f32(sink - lse[t])) * dot(out, grad, dim);
    }
    float& grad = args.grad_sinks.as<float>()[head];
    grad = static_cast<float>(args.accumulate ? grad + sum : sum);
  });
}

}  // namespace

void attention_forward(const Context& context, const AttentionForward& args) {
  check(args.shape, args.documents);
  for (const View* view : {&args.q, &args.k, &args.v, &args.out}) check_dtype(*view);
  thread_local std::vector<ForwardTile> storage;
  std::vector<ForwardTile>& tiles = storage;
  tiles.clear();
  for (int64_t index = 0; index < args.documents.count; ++index) {
    const Document document = document_at(args.documents, index);
    for (int64_t query = 0; query < document.size; query += kQueryTile) {
      for (int64_t head = 0; head < args.shape.heads; ++head) {
        tiles.push_back({.head = head,
                         .query = query,
                         .queries = std::min(kQueryTile, document.size - query),
                         .query_row = document.begin + query,
                         .key_row = document.begin});
      }
    }
  }
  run_tiles(context, args.shape, {args.q, args.k, args.v, args.sinks, args.out, args.lse}, tiles);
}

void attention_cached(const Context& context, const CachedAttention& args) {
  const AttentionShape& shape = args.shape;
  ensure(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "query heads share key heads evenly");
  const bool appends = !args.k.empty();
  ensure(!appends || (args.k.dtype == args.k_cache.dtype && args.v.dtype == args.v_cache.dtype),
         "a cache has its tokens' dtype");
  for (const View* view : {&args.q, &args.k_cache, &args.v_cache, &args.out}) check_dtype(*view);
  const size_t bytes = static_cast<size_t>(args.k.cols * dtype_bytes(args.k.dtype));
  const auto put = [&](const View& row, int64_t from, const View& cache, int64_t to) {
    std::memcpy(cache.slice_rows(to, 1).data, row.slice_rows(from, 1).data, bytes);
  };
  thread_local std::vector<ForwardTile> storage;
  std::vector<ForwardTile>& tiles = storage;
  tiles.clear();
  for (int64_t token = 0; token < shape.tokens;) {
    const int64_t sequence = args.sequences[token], position = args.positions[token];
    int64_t count = 0;
    for (; count < kQueryTile && token + count < shape.tokens && args.sequences[token + count] == sequence; ++count) {
      ensure(args.positions[token + count] == position + count, "new tokens of a sequence follow each other");
      if (!appends) continue;
      put(args.k, token + count, args.k_cache, sequence * args.context + position + count);
      put(args.v, token + count, args.v_cache, sequence * args.context + position + count);
    }
    for (int64_t head = 0; head < shape.heads; ++head) {
      tiles.push_back(
          {.head = head, .query = position, .queries = count, .query_row = token, .key_row = sequence * args.context});
    }
    token += count;
  }
  run_tiles(context, shape, {args.q, args.k_cache, args.v_cache, args.sinks, args.out, nullptr}, tiles);
}

void attention_backward(const Context& context, const AttentionBackward& args) {
  check(args.shape, args.documents);
  for (const View* view : {&args.q, &args.k, &args.v, &args.out}) check_dtype(*view);
  for (const View* view : {&args.grad_out, &args.grad_q, &args.grad_k, &args.grad_v}) check_dtype(*view);
  context.team.parallel_for(args.documents.count * args.shape.kv_heads, [&](int64_t index) {
    const Document document = document_at(args.documents, index / args.shape.kv_heads);
    backward_document(context, args, document, index % args.shape.kv_heads);
  });
  if (!args.grad_sinks.empty()) sink_gradient(context, args);
}

}  // namespace megatrain::cpu
