#include "megatrain/model/block_weights.h"

namespace megatrain {

BlockWeights block_weights(const ModelConfig& config, const BlockOffsets& at, DType dtype, std::byte* slab) {
  const auto tensor = [&](int64_t offset, int64_t rows, int64_t cols) {
    return offset < 0 ? View{} : matrix(slab + offset * dtype_bytes(dtype), dtype, rows, cols);
  };
  const int64_t hidden = config.hidden, ff = config.ff;
  return {.input_norm = tensor(at.input_norm, 1, hidden),
          .qkv = tensor(at.qkv, config.qkv_dim(), hidden),
          .qkv_bias = tensor(at.qkv_bias, 1, config.qkv_dim()),
          .q_norm = tensor(at.q_norm, 1, config.head_dim),
          .k_norm = tensor(at.k_norm, 1, config.head_dim),
          .o = tensor(at.o, hidden, config.q_dim()),
          .o_bias = tensor(at.o_bias, 1, hidden),
          .post_norm = tensor(at.post_norm, 1, hidden),
          .gate_up = tensor(at.gate_up, 2 * ff, hidden),
          .gate_up_bias = tensor(at.gate_up_bias, 1, 2 * ff),
          .down = tensor(at.down, hidden, ff),
          .down_bias = tensor(at.down_bias, 1, hidden)};
}

}  // namespace megatrain
