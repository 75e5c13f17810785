// A dense model as the planner sees it: an embedding, equal blocks, a head.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "megatrain/plan/workload.h"

namespace megatrain {

struct DenseShape {
  int64_t hidden = 0;
  int64_t vocab = 0;
  bool tied = false;  // the head needs the embedding's table too
  DType dtype = DType::bf16;
  int64_t blocks = 1;
  int64_t block_elements = 0;
  int64_t head_elements = 0;
  double head_flops = 0;
};

// The keep levels of a block with attention and an MLP: bytes, flops recomputed in backward, and flops that a repeated
// forward saves.
inline std::vector<KeepWork> block_levels(const std::array<int64_t, 5>& bytes, const std::array<double, 5>& recomputed,
                                          const std::array<double, 5>& spared = {}) {
  std::vector<KeepWork> levels;
  for (const char* name : {"nothing", "outputs", "attention", "products", "everything"}) {
    const size_t at = levels.size();
    KeepWork& level =
        levels.emplace_back(KeepWork{{.name = name, .recomputed = name, .may_wait = at == 1, .bytes = bytes[at]}});
    level.recomputed_flops = recomputed[at];
    level.spared_flops = spared[at];
  }
  return levels;
}

// Adds records and phases to `w`, whose other fields are set; everything is trained.
inline void make_dense(Workload& w, const DenseShape& shape) {
  const auto whole = [&](int64_t elements) {
    return RecordWork{.elements = elements, .trained = elements, .low = elements, .dtype = shape.dtype};
  };
  w.activation_dtype = shape.dtype;
  w.records.assign(1, whole(shape.vocab * shape.hidden));
  w.records[0].rows = shape.vocab;
  w.records[0].row_width = shape.hidden;
  w.records[0].whole = shape.tied;
  w.phases.assign(1, {.records = {0}, .looks_up = 0});
  const int64_t input = round_up(w.micro_tokens * shape.hidden * dtype_bytes(shape.dtype), 256);
  const double flops = 2.0 * static_cast<double>(shape.block_elements);
  for (int64_t block = 1; block <= shape.blocks; ++block) {
    w.records.push_back(whole(shape.block_elements));
    w.phases.push_back(
        {.records = {block},
         .width = shape.hidden,
         .levels = block_levels({0, 4 * input, 8 * input, 12 * input, 12 * input}, {flops, flops / 2, 0, 0, 0}),
         .forward_flops = flops,
         .backward_flops = 2 * flops});
  }
  w.records.push_back(whole(shape.head_elements));
  w.phases.push_back({.records = {shape.blocks + 1},
                      .width = shape.hidden,
                      .forward_flops = shape.head_flops,
                      .backward_flops = 2 * shape.head_flops,
                      .ends = true});
  if (shape.tied) w.phases.back().records.push_back(0);
  w.parameters = w.active_parameters = w.all_elements();
}

// Sets the dtype of every record and of the activations.
inline void set_dtype(Workload& w, DType dtype) {
  w.activation_dtype = dtype;
  for (RecordWork& record : w.records) record.dtype = dtype;
}

// Trained elements by record; a phase computes no gradients of frozen tensors.
inline void freeze(Workload& w, const std::vector<int64_t>& trained) {
  for (size_t r = 0; r < trained.size(); ++r) {
    PhaseWork& phase = w.phases[r == 0 && w.records[0].whole ? w.phases.size() - 1 : r];
    phase.backward_flops -= 2.0 * static_cast<double>(w.records[r].trained - trained[r]);
    w.records[r].trained = trained[r];
  }
}

}  // namespace megatrain
