// The operand numbers of the tensors in a block's first record.
#pragma once

namespace megatrain {

struct BlockOperand {
  enum : int {
    input_norm,        // (H) before the mixers
    qkv,               // (q + 2 kv, H)
    qkv_bias,          // (q + 2 kv)
    q_norm,            // (head_dim)
    k_norm,            // (head_dim)
    o,                 // (H, q)
    o_bias,            // (H)
    post_norm,         // (H) before the channels
    gate_up,           // (2F, H)
    gate_up_bias,      // (2F)
    down,              // (H, F)
    down_bias,         // (H)
    o_norm,            // (H) after the mixers
    down_norm,         // (H) after the channels
    sinks,             // (heads)
    router,            // (E, H)
    router_bias,       // (E)
    out_scale,         // (1) multiplies the block's output
    mlp_norm,          // (H) before an MLP beside experts
    mlp_out_norm,      // (H) after it
    experts_norm,      // (H) before experts beside an MLP
    experts_out_norm,  // (H) after them
    router_norm,       // (H) before their router
    expert_factors,    // (E) multiply the router's weights
    router_linear,     // (E, H) instead of `router`: a module of its own in transformers, so it may have adapters
    first_free,        // other kinds of mixers and channels number their operands from here
  };
};

}  // namespace megatrain
