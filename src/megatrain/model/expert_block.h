// The block with a mixture of experts in the place of its MLP: a record of attention, norms and router, and records of
// experts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "megatrain/model/block.h"
#include "megatrain/model/config.h"
#include "megatrain/model/layer.h"

namespace megatrain {

// The numbers that its tensors carry as their operand beside those of BlockOperand, which the first record has up to
// post_norm. The last four are repeated for every expert of a record, in this order.
struct ExpertOperand {
  enum : int {
    router = BlockOperand::down_norm + 1,  // (E, H)
    router_bias,                           // (E)
    sinks,                                 // (heads)
    gate_up,                               // (2F, H) gate, then up
    gate_up_bias,                          // (2F)
    down,                                  // (H, F)
    down_bias,                             // (H)
  };
};

std::vector<std::unique_ptr<const Phase>> expert_phases(const ModelConfig& config, const ModelShape& shape,
                                                        int64_t layer, std::span<const LayerLayout> records);

}  // namespace megatrain
