// A block's tensors as views of its slab.
#pragma once

#include <cstddef>

#include "megatrain/model/config.h"
#include "megatrain/model/layers.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

// Empty: the block has no such tensor. Norms and biases are one row.
struct BlockWeights {
  View input_norm;             // (H)
  View qkv, qkv_bias;          // (q + 2 kv, H)
  View q_norm, k_norm;         // (head_dim)
  View o, o_bias;              // (H, q)
  View post_norm;              // (H)
  View gate_up, gate_up_bias;  // (2F, H)
  View down, down_bias;        // (H, F)
};

BlockWeights block_weights(const ModelConfig& config, const BlockOffsets& at, DType dtype, std::byte* slab);

}  // namespace megatrain
