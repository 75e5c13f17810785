// A record bound to its slabs for one call, with the stream that the call's work is enqueued on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "megatrain/model/layers/carve.h"
#include "megatrain/model/layers/micro_batch.h"
#include "megatrain/ops/ops.h"

namespace megatrain {

// The record of a layer's adapters, if it has one.
struct AdapterBinding {
  std::byte* weights = nullptr;
  float* gradients = nullptr;
  std::byte* scratch = nullptr;        // adapter_scratch_bytes(); each call of a Linear overwrites it
  int64_t first_token = 0;             // of the call's rows, within the micro-batch
  std::optional<StepRandom> random{};  // for dropout; empty: nothing is dropped
};

struct Binding {
  Ops& ops;
  Stream& stream;
  std::byte* weights;
  float* gradients = nullptr;  // fp32; nullptr in forward, and if nothing of the record is trained
  bool accumulate = false;     // gradients are accumulated (+=) instead of assigned
  AdapterBinding adapter = {};

  // The binding for one range of tokens. Every range but the first accumulates.
  Binding at(const TokenRange& range) const {
    Binding part{ops, stream, weights, gradients, accumulate || range.begin > 0, adapter};
    part.adapter.first_token += range.begin;
    return part;
  }
};

}  // namespace megatrain
