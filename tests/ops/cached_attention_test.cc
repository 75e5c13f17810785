// Attention with a KV cache, on the CPU.
#include <gtest/gtest.h>

#include "tests/ops/cached_attention.h"
#include "tests/ops/cpu_fixture.h"

namespace megatrain::testing {
namespace {

// The result of attention over whole documents, for the new tokens of the case.
Vector whole_attention(Harness& h, const CachedAttentionCase& c, Values in) {
  std::vector<int32_t> begin = {0};
  for (size_t s = 0; s < c.before.size(); ++s) begin.push_back(begin.back() + c.before[s] + c.fresh[s]);
  const int64_t tokens = begin.back(), q_dim = c.heads * c.head_dim, kv_dim = c.kv_heads * c.head_dim;
  const Buffer begin_d = h.upload(begin);
  const Tensor q = h.filled(c.dtype, tokens, q_dim, in["q"]), k = h.filled(c.dtype, tokens, kv_dim, in["k"]),
               v = h.filled(c.dtype, tokens, kv_dim, in["v"]), out = h.poisoned(c.dtype, tokens, q_dim),
               lse = h.poisoned(DType::f32, c.heads, tokens),
               sinks = c.sinks ? h.filled(c.dtype, 1, c.heads, in["sinks"]) : Tensor{};
  h.ops.attention_forward(h.stream, {.shape = {.tokens = tokens,
                                               .heads = c.heads,
                                               .kv_heads = c.kv_heads,
                                               .head_dim = c.head_dim,
                                               .window = c.window,
                                               .scale = scale_of(c),
                                               .cap = c.cap},
                                     .documents = {.begin = pointer<int32_t>(begin_d),
                                                   .host_begin = begin.data(),
                                                   .count = static_cast<int64_t>(c.before.size()),
                                                   .longest = tokens,
                                                   .uniform = false},
                                     .q = q.view,
                                     .k = k.view,
                                     .v = v.view,
                                     .sinks = sinks.view,
                                     .out = out.view,
                                     .lse = lse.view.as<float>()});
  h.stream.synchronize();
  Vector fresh;
  for (size_t s = 0; s < c.before.size(); ++s) {
    const Vector rows = h.read(out, out.view.slice_rows(begin[s] + c.before[s], c.fresh[s]));
    fresh.insert(fresh.end(), rows.begin(), rows.end());
  }
  return fresh;
}

TEST(CachedAttention, NewTokensGetTheBitsThatAttentionOverTheWholeDocumentGives) {
  CpuFixture cpu({});
  for (const CachedAttentionCase& c : kCachedAttentionCases) {
    const OpRun r = run(cpu.harness, c, 5);
    EXPECT_EQ(r.out.at("out"), whole_attention(cpu.harness, c, r.in)) << name_of(c);
  }
}

TEST(CachedAttention, TheCacheThenHoldsEveryKeyAndValueInOrder) {
  CpuFixture cpu({});
  for (const CachedAttentionCase& c : kCachedAttentionCases) {
    const OpRun r = run(cpu.harness, c, 6);
    EXPECT_EQ(r.out.at("k"), r.in.at("k")) << name_of(c);
    EXPECT_EQ(r.out.at("v"), r.in.at("v")) << name_of(c);
  }
}

}  // namespace
}  // namespace megatrain::testing
