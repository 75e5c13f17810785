// What both devices must do with Mamba 2's recurrence beyond its cases: generation and packing.
#pragma once

#include "tests/ops/delta_cached.h"
#include "tests/ops/run_ssd_cases.h"

namespace megatrain::testing {

// "out" of all tokens and the "state" afterwards (delta_cached.h).
inline Values run_cached(Harness& h, const SsdCase& s, const Values& in, const CallSizes& calls) {
  const int64_t width = s.heads * s.head_dim, states = s.groups * s.state_dim;
  const int64_t sequences = static_cast<int64_t>(s.documents.size());
  const Tensor state = h.poisoned(DType::f32, sequences * s.heads * s.state_dim, s.head_dim);
  const Tensor skip = h.filled(s.dtype, 1, s.heads, in.at("skip"));
  Vector out(in.at("x").size());
  for (const CallRows::Call& call : CallRows(s.documents, calls).list) {
    SsdShape shape = shape_of(s);
    shape.tokens = static_cast<int64_t>(call.rows.size());
    const Tensor all = h.poisoned(s.dtype, shape.tokens, SsdColumns::width(s), s.gap);
    const SsdColumns at(all, s);
    h.write(all, at.x, call.pick(in.at("x"), width));
    h.write(all, at.b, call.pick(in.at("b"), states));
    h.write(all, at.c, call.pick(in.at("c"), states));
    const Tensor step = h.filled(DType::f32, shape.tokens, s.heads, call.pick(in.at("step"), s.heads)),
                 g = h.filled(DType::f32, shape.tokens, s.heads, call.pick(in.at("g"), s.heads)),
                 y = h.poisoned(s.dtype, shape.tokens, width, s.gap);
    const Buffer sequences_d = h.upload(call.sequences), positions_d = h.upload(call.positions);
    h.ops.ssd_cached(h.stream, {.shape = shape,
                                .sequences = pointer<int32_t>(sequences_d),
                                .positions = pointer<int32_t>(positions_d),
                                .x = at.x,
                                .b = at.b,
                                .c = at.c,
                                .step = step.view,
                                .g = g.view,
                                .skip = skip.view,
                                .state = state.view,
                                .out = y.view});
    h.stream.synchronize();
    call.put(h.read(y), width, out);
  }
  return {{"out", out}, {"state", h.read(state)}};
}

// Generation in pieces of prompts and single tokens gives what training's forward gives, and bits do not depend on the
// pieces. `close`: a bound for differences of fp32 from the forward.
inline void check_cached_ssd(Harness& h, double close) {
  const CallSizes pieces = {{3, 0, 1}, {0, 1, 0}, {1, 1, 1}, {60, 2, 0}, {1, 1, 1}, {5, 0, 97}};
  const CallSizes at_once = {{70, 5, 100}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t dim : {5, 64, 128}) {
      const SsdCase c{dtype, {70, 5, 100}, 4, 2, dim, dim == 128 ? 208 : 48, 0.2f, 8};
      const OpRun r = run(h, c, 5);
      const Values cached = run_cached(h, c, r.in, pieces);
      double scale = 0;
      for (const double value : r.out.at("out")) scale = std::max(scale, std::fabs(value));
      EXPECT_LE(largest_difference(cached.at("out"), r.out.at("out")), scale * (dtype == DType::f32 ? close : 8e-3))
          << name_of(c);
      EXPECT_EQ(cached, run_cached(h, c, r.in, at_once)) << name_of(c);
    }
  }
}

// Each document of a packed call has the bits that it has alone, and the bits do not depend on what a neighbour holds.
inline void check_packed_ssd(Harness& h) {
  const std::vector<int32_t> documents = {5, 64, 1, 130, 63, 2};
  const int64_t tokens = std::accumulate(documents.begin(), documents.end(), int64_t{0});
  const auto of_head = [](const std::string& name) { return name == "skip" || name == "grad_skip"; };
  const auto rows = [&](const Vector& values, int64_t all, int64_t begin, int64_t count) {
    const int64_t cols = static_cast<int64_t>(values.size()) / all;
    return Vector(values.begin() + begin * cols, values.begin() + (begin + count) * cols);
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const SsdCase packed{dtype, documents, 4, 2, 48, 32};
    const OpRun together = run(h, packed, 21);
    int64_t begin = 0;
    for (int32_t size : documents) {
      SsdCase alone = packed;
      alone.documents = {size};
      Values given;
      for (const auto& [name, values] : together.in)
        given[name] = of_head(name) ? values : rows(values, tokens, begin, size);
      const OpRun apart = run(h, alone, 21, given);
      for (const auto& [name, values] : together.out) {
        if (of_head(name)) continue;  // a sum over all documents
        EXPECT_EQ(rows(values, tokens, begin, size), apart.out.at(name)) << name << " of document " << begin;
      }
      begin += size;
    }
    Values given = together.in;
    for (auto& [name, values] : given) {
      const int64_t cols = static_cast<int64_t>(values.size()) / tokens;
      if (!of_head(name)) std::fill(values.begin() + 5 * cols, values.begin() + 69 * cols, std::nan(""));
    }
    const OpRun spoilt = run(h, packed, 21, given);
    for (const auto& [name, values] : together.out) {
      if (of_head(name)) continue;
      EXPECT_EQ(rows(values, tokens, 0, 5), rows(spoilt.out.at(name), tokens, 0, 5)) << name;
      EXPECT_EQ(rows(values, tokens, 69, tokens - 69), rows(spoilt.out.at(name), tokens, 69, tokens - 69)) << name;
      EXPECT_TRUE(std::isnan(rows(spoilt.out.at(name), tokens, 68, 1)[0])) << name;
    }
  }
}

}  // namespace megatrain::testing
