// Cases of attention with a KV cache, and how to run them on any device.
#pragma once

#include <algorithm>
#include <cmath>

#include "tests/ops/harness.h"

namespace megatrain::testing {

struct CachedAttentionCase {
  DType dtype;
  std::vector<int32_t> before, fresh;  // tokens of each sequence: in the cache, and new
  int64_t heads, kv_heads, head_dim;
  int64_t window = 0;
  int64_t gap = 0;  // extra row stride of q, k and v
  float scale = 0;  // 0: 1 / sqrt(head_dim)
  bool sinks = false;
  float cap = 0;
};

inline const std::vector<CachedAttentionCase> kCachedAttentionCases = {
    {DType::f32, {0}, {1}, 1, 1, 1},
    {DType::f32, {5}, {1}, 2, 2, 3},
    {DType::f32, {0, 7, 3}, {4, 1, 2}, 4, 2, 6, 0, 2},
    {DType::f32, {9, 0}, {3, 12}, 8, 1, 10, 4},
    {DType::f32, {130, 64, 0, 200}, {1, 1, 1, 1}, 4, 1, 20},
    {DType::f32, {100, 0}, {90, 140}, 2, 1, 64, 50},
    {DType::f32, {40, 3}, {1, 5}, 4, 4, 128},
    {DType::f32, {300}, {2}, 2, 1, 256, 0, 4},
    {DType::bf16, {5, 0}, {1, 9}, 4, 2, 6},
    {DType::bf16, {250, 17, 0, 1}, {1, 1, 1, 1}, 8, 2, 64},
    {DType::bf16, {0, 33}, {70, 65}, 4, 4, 80, 33, 8},
    {DType::bf16, {700, 129}, {1, 4}, 14, 2, 128},
    {DType::bf16, {31, 0}, {1, 40}, 4, 1, 256, 16},
    {DType::f32, {9, 0}, {3, 12}, 4, 2, 10, 4, 0, 0.9f},
    {DType::bf16, {31, 0}, {1, 40}, 4, 1, 256, 16, 0, 0.0770f},
    {DType::f32, {0}, {1}, 1, 1, 1, 0, 0, 0, true},
    {DType::f32, {9, 0, 130}, {3, 12, 1}, 8, 2, 10, 4, 2, 0, true},
    {DType::bf16, {250, 17, 0, 1}, {1, 1, 1, 1}, 8, 1, 64, 0, 0, 0, true},
    {DType::bf16, {0, 133}, {70, 65}, 4, 4, 80, 33, 8, 0, true},
    {DType::f32, {9, 0, 130}, {3, 12, 1}, 8, 2, 10, 4, 2, 0, false, 0.5f},
    {DType::bf16, {31, 0}, {1, 40}, 4, 1, 256, 16, 0, 0.0770f, false, 0.8f},
};

inline std::string name_of(const CachedAttentionCase& c) {
  std::string text = std::string("cached attention ") + dtype_name(c.dtype) + " " +
                     sizes({c.heads, c.kv_heads, c.head_dim}) + " window " + std::to_string(c.window);
  for (size_t s = 0; s < c.before.size(); ++s)
    text.append(" ").append(std::to_string(c.before[s])).append("+").append(std::to_string(c.fresh[s]));
  return text + flags({{c.sinks, "sinks"}, {c.cap > 0, "capped"}});
}

inline float scale_of(const CachedAttentionCase& c) {
  return c.scale > 0 ? c.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
}

// `in`: q, k, v of all tokens, sequence after sequence, and the sinks. `out`: "out" for the new tokens, and the
// contents of the caches afterwards for all tokens.
inline OpRun run(Harness& h, const CachedAttentionCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  const size_t count = c.before.size();
  const int64_t q_dim = c.heads * c.head_dim, kv_dim = c.kv_heads * c.head_dim;
  int64_t all = 0, fresh = 0, longest = 0;
  for (size_t s = 0; s < count; ++s) {
    all += c.before[s] + c.fresh[s];
    fresh += c.fresh[s];
    longest = std::max<int64_t>(longest, c.before[s] + c.fresh[s]);
  }
  const int64_t context = longest + 3;
  r.in["q"] = h.random(all * q_dim, c.dtype);
  r.in["k"] = h.random(all * kv_dim, c.dtype);
  r.in["v"] = h.random(all * kv_dim, c.dtype);
  if (c.sinks) r.in["sinks"] = h.random(c.heads, c.dtype, 2.0);
  const Tensor sinks = c.sinks ? h.filled(c.dtype, 1, c.heads, r.in["sinks"]) : Tensor{};
  const auto rows = [](const Vector& from, int64_t begin, int64_t size, int64_t cols) {
    return Vector(from.begin() + begin * cols, from.begin() + (begin + size) * cols);
  };

  // sequence s is at place count - 1 - s; unwritten entries are NaN
  const Tensor k_cache = h.poisoned(c.dtype, static_cast<int64_t>(count) * context, kv_dim);
  const Tensor v_cache = h.poisoned(c.dtype, static_cast<int64_t>(count) * context, kv_dim);
  const Tensor qkv = h.poisoned(c.dtype, fresh, q_dim + 2 * kv_dim, c.gap);
  const Tensor out = h.poisoned(c.dtype, fresh, q_dim);
  const View q = qkv.view.slice_cols(0, q_dim), k = qkv.view.slice_cols(q_dim, kv_dim),
             v = qkv.view.slice_cols(q_dim + kv_dim, kv_dim);
  std::vector<int32_t> sequences, positions;
  int64_t token = 0, row = 0;
  for (size_t s = 0; s < count; ++s) {
    const int64_t place = static_cast<int64_t>(count - 1 - s), old = c.before[s], size = c.fresh[s];
    h.write(k_cache, k_cache.view.slice_rows(place * context, old), rows(r.in["k"], token, old, kv_dim));
    h.write(v_cache, v_cache.view.slice_rows(place * context, old), rows(r.in["v"], token, old, kv_dim));
    h.write(qkv, q.slice_rows(row, size), rows(r.in["q"], token + old, size, q_dim));
    h.write(qkv, k.slice_rows(row, size), rows(r.in["k"], token + old, size, kv_dim));
    h.write(qkv, v.slice_rows(row, size), rows(r.in["v"], token + old, size, kv_dim));
    for (int64_t i = 0; i < size; ++i) {
      sequences.push_back(static_cast<int32_t>(place));
      positions.push_back(static_cast<int32_t>(old + i));
    }
    token += old + size;
    row += size;
  }
  const Buffer sequences_d = h.upload(sequences), positions_d = h.upload(positions);
  h.launch(r.seconds["forward"], [&] {
    h.ops.attention_cached(h.stream, {.shape = {.tokens = fresh,
                                                .heads = c.heads,
                                                .kv_heads = c.kv_heads,
                                                .head_dim = c.head_dim,
                                                .window = c.window,
                                                .scale = scale_of(c),
                                                .cap = c.cap},
                                      .context = context,
                                      .sequences = pointer<int32_t>(sequences_d),
                                      .positions = pointer<int32_t>(positions_d),
                                      .q = q,
                                      .k = k,
                                      .v = v,
                                      .sinks = sinks.view,
                                      .k_cache = k_cache.view,
                                      .v_cache = v_cache.view,
                                      .out = out.view});
  });
  r.out["out"] = h.read(out);
  for (size_t s = 0; s < count; ++s) {
    const int64_t first = static_cast<int64_t>(count - 1 - s) * context, size = c.before[s] + c.fresh[s];
    const Vector keys = h.read(k_cache, k_cache.view.slice_rows(first, size)),
                 values = h.read(v_cache, v_cache.view.slice_rows(first, size));
    r.out["k"].insert(r.out["k"].end(), keys.begin(), keys.end());
    r.out["v"].insert(r.out["v"].end(), values.begin(), values.end());
  }
  return r;
}

}  // namespace megatrain::testing
