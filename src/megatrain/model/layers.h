// The layers of a dense decoder as layouts: embedding, blocks, head. Layer l of the model is record l:
// 0 the embedding, 1..L the blocks, L + 1 the head (final norm and, unless tied, the output matrix).
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/model/config.h"
#include "megatrain/model/freeze.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

// Where a block's tensors lie in its slab; -1: the block has no such tensor. The same for all blocks of a model.
struct BlockOffsets {
  int64_t input_norm = -1;
  int64_t qkv = -1;       // (q_dim + 2 kv_dim, hidden), one matrix
  int64_t qkv_bias = -1;  // (q_dim + 2 kv_dim)
  int64_t q_norm = -1;    // (head_dim)
  int64_t k_norm = -1;
  int64_t o = -1;  // (hidden, q_dim)
  int64_t o_bias = -1;
  int64_t post_norm = -1;
  int64_t gate_up = -1;  // (2 ff, hidden), one matrix
  int64_t gate_up_bias = -1;
  int64_t down = -1;  // (hidden, ff)
  int64_t down_bias = -1;
};

struct HeadOffsets {
  int64_t norm = -1;
  int64_t table = -1;  // (vocab, hidden); -1 when tied
};

// Where gradients lie in a layer's gradient slab; -1: frozen, or there is no such tensor.

// Of rows [begin, begin + rows) of one product's weight.
struct LinearGradient {
  int64_t begin = 0;
  int64_t rows = 0;
  int64_t weight = -1;
  int64_t bias = -1;
};

// Of each product the fewest calls that make what is trained: one when all or none of its fused tensors are frozen.
struct BlockGradients {
  int64_t input_norm = -1;
  int64_t q_norm = -1;
  int64_t k_norm = -1;
  int64_t post_norm = -1;
  std::vector<LinearGradient> qkv, o, gate_up, down;
};

struct HeadGradients {
  int64_t norm = -1;
  int64_t table = -1;  // -1 also when tied
};

LayerLayout embedding_layout(const ModelConfig& config);
LayerLayout block_layout(const ModelConfig& config, int64_t block);
LayerLayout head_layout(const ModelConfig& config);
BlockOffsets block_offsets(const ModelConfig& config);
HeadOffsets head_offsets(const ModelConfig& config);

BlockGradients block_gradients(const LayerLayout& block);
HeadGradients head_gradients(const LayerLayout& head);

// All records in order.
std::vector<LayerLayout> model_layouts(const ModelConfig& config, const FreezeRules& rules = {});

// Fills one fp32 tensor as the families initialise: normal(0, init_std) for matrices, ones for norms, zeros for biases
// and for the padding id's row of the embedding.
// Element i depends on (seed, tensor name, i) alone, so pieces may be filled in any order.
void init_tensor(const ModelConfig& config, const TensorSpec& tensor, uint64_t seed, int64_t begin, int64_t count,
                 float* out);

}  // namespace megatrain
