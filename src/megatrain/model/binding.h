// A record bound to its slabs for one call, with the stream that the call's work is enqueued on.
#pragma once

#include <cstddef>

#include "megatrain/model/carve.h"
#include "megatrain/ops/ops.h"

namespace megatrain {

struct Binding {
  Ops& ops;
  Stream& stream;
  std::byte* weights;
  float* gradients = nullptr;  // fp32; nullptr in forward, and if nothing of the record is trained
  bool accumulate = false;     // gradients are accumulated (+=) instead of assigned

  // The binding for one range of tokens. Every range but the first accumulates.
  Binding at(const TokenRange& range) const { return {ops, stream, weights, gradients, accumulate || range.begin > 0}; }
};

}  // namespace megatrain
