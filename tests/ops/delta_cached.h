// How generation's ops of a gated delta net are run: sequences whose first tokens were in earlier calls.
#pragma once

#include "tests/ops/run_delta_cases.h"

namespace megatrain::testing {

// The same documents, of which every call gets some more tokens: calls[i][d] of document d. Document d is sequence
// documents - 1 - d. Caches start as NaN.
using CallSizes = std::vector<std::vector<int32_t>>;

// Rows of a (T, cols) tensor of documents, in the order in which the calls get them.
class CallRows {
 public:
  CallRows(const std::vector<int32_t>& documents, const CallSizes& calls) {
    std::vector<int32_t> begin{0}, done(documents.size(), 0);
    for (int32_t size : documents) begin.push_back(begin.back() + size);
    for (const std::vector<int32_t>& call : calls) {
      Call made;
      for (size_t d = 0; d < call.size(); ++d) {
        for (int32_t i = 0; i < call[d]; ++i) {
          made.rows.push_back(begin[d] + done[d]);
          made.sequences.push_back(static_cast<int32_t>(documents.size() - 1 - d));
          made.positions.push_back(done[d]++);
        }
      }
      list.push_back(made);
    }
  }

  struct Call {
    std::vector<int32_t> rows, sequences, positions;
    Vector pick(const Vector& values, int64_t cols) const {
      Vector picked;
      for (int64_t row : rows)
        picked.insert(picked.end(), values.begin() + row * cols, values.begin() + (row + 1) * cols);
      return picked;
    }
    void put(const Vector& picked, int64_t cols, Vector& values) const {
      for (size_t i = 0; i < rows.size(); ++i)
        std::copy_n(picked.begin() + static_cast<int64_t>(i) * cols, cols, values.begin() + rows[i] * cols);
    }
  };
  std::vector<Call> list;
};

// "out" of all tokens and the "window" afterwards.
inline Values run_cached(Harness& h, const ShortConvCase& c, const Values& in, const CallSizes& calls) {
  const Tensor weight = h.filled(c.dtype, c.channels, c.taps, in.at("weight"));
  const Tensor bias = c.bias ? h.filled(c.dtype, 1, c.channels, in.at("bias")) : Tensor{};
  const int64_t sequences = static_cast<int64_t>(c.documents.size());
  const Tensor window = h.poisoned(c.dtype, sequences * (c.taps - 1), c.channels);
  Vector out(in.at("x").size());
  for (const CallRows::Call& call : CallRows(c.documents, calls).list) {
    const int64_t tokens = static_cast<int64_t>(call.rows.size());
    const Tensor x = h.filled(c.dtype, tokens, c.channels, call.pick(in.at("x"), c.channels), c.gap);
    const Tensor y = h.poisoned(c.dtype, tokens, c.channels, c.gap);
    const Buffer sequences_d = h.upload(call.sequences), positions_d = h.upload(call.positions);
    h.ops.short_conv_cached(h.stream, {.sequences = pointer<int32_t>(sequences_d),
                                       .positions = pointer<int32_t>(positions_d),
                                       .x = x.view,
                                       .weight = weight.view,
                                       .bias = bias.view,
                                       .window = window.view,
                                       .out = y.view,
                                       .silu = !c.plain});
    h.stream.synchronize();
    call.put(h.read(y), c.channels, out);
  }
  return {{"out", out}, {"window", h.read(window)}};
}

// "out" of all tokens and the "state" afterwards.
inline Values run_cached(Harness& h, const DeltaRuleCase& c, const Values& in, const CallSizes& calls) {
  const int64_t keys = c.key_heads * c.key_dim, values = c.value_heads * c.value_dim;
  const int64_t sequences = static_cast<int64_t>(c.documents.size());
  const Tensor state = h.poisoned(DType::f32, sequences * c.value_heads * c.key_dim, c.value_dim);
  Vector out(in.at("v").size());
  for (const CallRows::Call& call : CallRows(c.documents, calls).list) {
    DeltaRuleShape shape = shape_of(c);
    shape.tokens = static_cast<int64_t>(call.rows.size());
    const Tensor qkv = h.poisoned(c.dtype, shape.tokens, DeltaColumns::width(c), c.gap);
    const DeltaColumns at(qkv, c);
    h.write(qkv, at.q, call.pick(in.at("q"), keys));
    h.write(qkv, at.k, call.pick(in.at("k"), keys));
    h.write(qkv, at.v, call.pick(in.at("v"), values));
    const Tensor g = h.filled(DType::f32, shape.tokens, c.value_heads, call.pick(in.at("g"), c.value_heads)),
                 beta = h.filled(DType::f32, shape.tokens, c.value_heads, call.pick(in.at("beta"), c.value_heads)),
                 y = h.poisoned(c.dtype, shape.tokens, values, c.gap);
    const Buffer sequences_d = h.upload(call.sequences), positions_d = h.upload(call.positions);
    h.ops.delta_rule_cached(h.stream, {.shape = shape,
                                       .sequences = pointer<int32_t>(sequences_d),
                                       .positions = pointer<int32_t>(positions_d),
                                       .q = at.q,
                                       .k = at.k,
                                       .v = at.v,
                                       .g = g.view,
                                       .beta = beta.view,
                                       .state = state.view,
                                       .out = y.view});
    h.stream.synchronize();
    call.put(h.read(y), values, out);
  }
  return {{"out", out}, {"state", h.read(state)}};
}

inline double largest_difference(const Vector& a, const Vector& b) {
  double worst = a.size() == b.size() ? 0 : std::nan("");
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double difference = std::fabs(a[i] - b[i]);
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

// Generation in pieces of prompts and single tokens gives what training's forward gives, and bits do not depend on the
// pieces. `close`: a bound for differences of fp32 from the forward.
inline void check_cached(Harness& h, double close) {
  const CallSizes pieces = {{3, 0, 1}, {0, 1, 0}, {1, 1, 1}, {60, 2, 0}, {1, 1, 1}, {5, 0, 97}};
  const CallSizes at_once = {{70, 5, 100}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t taps : {2, 3, 4}) {
      const ShortConvCase c{dtype, {70, 5, 100}, 40, taps, 8, false, false, taps == 4, taps == 3};
      const OpRun r = run(h, c, 5);
      const Values cached = run_cached(h, c, r.in, pieces);
      EXPECT_EQ(cached.at("out"), r.out.at("out")) << name_of(c);
      EXPECT_EQ(cached, run_cached(h, c, r.in, at_once)) << name_of(c);
    }
    for (const int64_t dim : {16, 128, 208}) {
      const DeltaRuleCase c{dtype, {70, 5, 100}, 2, 4, dim, dim == 128 ? 128 : 48, 0.2f, 8};
      const OpRun r = run(h, c, 5);
      const Values cached = run_cached(h, c, r.in, pieces);
      EXPECT_LE(largest_difference(cached.at("out"), r.out.at("out")), dtype == DType::f32 ? close : 8e-3)
          << name_of(c);
      EXPECT_EQ(cached, run_cached(h, c, r.in, at_once)) << name_of(c);
    }
  }
}

// Each document of a packed call has the bits that it has alone, and the bits do not depend on what a neighbour holds.
inline void check_packed_delta_rule(Harness& h) {
  const std::vector<int32_t> documents = {5, 64, 1, 130, 63, 2};
  const auto rows = [](const Vector& values, int64_t tokens, int64_t begin, int64_t count) {
    const int64_t cols = static_cast<int64_t>(values.size()) / tokens;
    return Vector(values.begin() + begin * cols, values.begin() + (begin + count) * cols);
  };
  const auto check = [&](const auto& packed, int64_t tokens) {
    const OpRun together = run(h, packed, 21);
    int64_t begin = 0;
    for (int32_t size : documents) {
      auto alone = packed;
      alone.documents = {size};
      Values given;
      for (const auto& [name, values] : together.in)
        given[name] = name == "weight" ? values : rows(values, tokens, begin, size);
      const OpRun apart = run(h, alone, 21, given);
      for (const auto& [name, values] : together.out) {
        if (name == "grad_weight") continue;  // a sum over all documents
        EXPECT_EQ(rows(values, tokens, begin, size), apart.out.at(name)) << name << " of document " << begin;
      }
      begin += size;
    }
    Values given = together.in;
    for (auto& [name, values] : given) {
      const int64_t cols = static_cast<int64_t>(values.size()) / tokens;
      if (name != "weight") std::fill(values.begin() + 5 * cols, values.begin() + 69 * cols, std::nan(""));
    }
    const OpRun spoilt = run(h, packed, 21, given);
    for (const auto& [name, values] : together.out) {
      if (name == "grad_weight") continue;
      EXPECT_EQ(rows(values, tokens, 0, 5), rows(spoilt.out.at(name), tokens, 0, 5)) << name;
      EXPECT_EQ(rows(values, tokens, 69, tokens - 69), rows(spoilt.out.at(name), tokens, 69, tokens - 69)) << name;
      EXPECT_TRUE(std::isnan(rows(spoilt.out.at(name), tokens, 68, 1)[0])) << name;
    }
  };
  const int64_t tokens = std::accumulate(documents.begin(), documents.end(), int64_t{0});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check(DeltaRuleCase{dtype, documents, 2, 4, 32, 48}, tokens);
    check(DeltaRuleCase{dtype, documents, 8, 16, 128, 128}, tokens);
    check(ShortConvCase{dtype, documents, 24}, tokens);
  }
}

}  // namespace megatrain::testing
