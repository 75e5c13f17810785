// The operand numbers of the tensors in a block's records.
#pragma once

namespace megatrain {

struct BlockOperand {
  enum : int {
    input_norm,    // (H) before the mixers
    qkv,           // (q + 2 kv, H)
    qkv_bias,      // (q + 2 kv)
    q_norm,        // (head_dim) or (q)
    k_norm,        // (head_dim) or (kv)
    o,             // (H, q)
    o_bias,        // (H)
    post_norm,     // (H) before the channels
    gate_up,       // (2F, H), or (F, H) without a gate
    gate_up_bias,  // (2F), or (F)
    down,          // (H, F)
    down_bias,     // (H)
    row_gate,      // (1, H) of a shared expert
    o_norm,        // (H) after the mixers
    down_norm,     // (H) after the channels
    sinks,         // (heads)
    router,        // (E, H)
    router_bias,   // (E)
    gated_q,       // (2q, H) by head: its query, then its output gate; qkv is then k and v alone, (2 kv, H)
    choice_bias,   // (E) fp32, in a record of its own
    out_scale,     // (1) multiplies the block's output

    // An MLP beside experts, each with norms of its own.
    mlp_norm,          // (H) before the MLP
    mlp_out_norm,      // (H) after it
    experts_norm,      // (H) before the experts
    experts_out_norm,  // (H) after them
    router_norm,       // (H) before their router
    expert_factors,    // (E) multiply the router's weights
    router_linear,     // (E, H) instead of `router`: a module of its own in transformers, so it may have adapters

    // The same for every expert. They are in records of experts.
    expert_gate_up,       // (2F, H) gate, then up; (F, H) without a gate
    expert_gate_up_bias,  // (2F), or (F)
    expert_down,          // (H, F)
    expert_down_bias,     // (H)

    first_free,  // other kinds of mixers and channels number their operands from here
  };

  static constexpr bool is_of_expert(int operand) { return operand >= expert_gate_up && operand <= expert_down_bias; }
};

}  // namespace megatrain
