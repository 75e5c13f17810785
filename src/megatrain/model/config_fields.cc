#include "megatrain/model/config_fields.h"

#include <cmath>
#include <tuple>

namespace megatrain {
namespace {

using nlohmann::ordered_json;

const char* scaling_name(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::none: return "default";
    case RopeScaling::linear: return "linear";
    case RopeScaling::llama3: return "llama3";
    case RopeScaling::yarn: return "yarn";
    case RopeScaling::longrope: return "longrope";
    case RopeScaling::proportional: return "proportional";
  }
  return "?";
}

ordered_json rope_json(const RopeConfig& rope) {
  const auto& [scaling, theta, factor, low_freq_factor, high_freq_factor, original_max_position, beta_fast, beta_slow,
               attention_factor, truncate, rotary_dim, short_factor, long_factor, pairs, query_growth, proportion] =
      rope;
  return {{"rope_type", scaling_name(scaling)},
          {"rope_theta", theta},
          {"factor", factor},
          {"low_freq_factor", low_freq_factor},
          {"high_freq_factor", high_freq_factor},
          {"original_max_position_embeddings", original_max_position},
          {"beta_fast", beta_fast},
          {"beta_slow", beta_slow},
          {"attention_factor", attention_factor},
          {"truncate", truncate},
          {"rotary_dim", rotary_dim},
          {"short_factor", short_factor},
          {"long_factor", long_factor},
          {"pairs", pairs},
          {"query_growth", query_growth},
          {"partial_rotary_factor", proportion}};
}

ordered_json heads_json(const HeadSizes& heads) {
  const auto& [kv_heads, head_dim, keys_are_values] = heads;
  return {{"num_key_value_heads", kv_heads}, {"head_dim", head_dim}, {"keys_are_values", keys_are_values}};
}

const char* activation_name(Activation activation) {
  switch (activation) {
    case Activation::silu: return "silu";
    case Activation::gelu_tanh: return "gelu_pytorch_tanh";
    case Activation::gelu_sigmoid: return "gelu_sigmoid";
    case Activation::relu_squared: return "relu2";
  }
  return "?";
}

const char* score_name(RouterScore score) {
  switch (score) {
    case RouterScore::softmax_of_chosen: return "softmax_of_chosen";
    case RouterScore::softmax_of_all: return "softmax_of_all";
    case RouterScore::sigmoid: return "sigmoid";
  }
  return "?";
}

// null for a model without delta nets.
ordered_json delta_net_json(const DeltaNetConfig& delta_net) {
  const auto& [key_heads, value_heads, key_dim, value_dim, taps, layers, by_key_head] = delta_net;
  static_cast<void>(by_key_head);  // the architecture says it
  if (layers.empty()) return {};
  return {{"linear_num_key_heads", key_heads}, {"linear_num_value_heads", value_heads},
          {"linear_key_head_dim", key_dim},    {"linear_value_head_dim", value_dim},
          {"linear_conv_kernel_dim", taps},    {"layers", layers}};
}

// null for a model without Mamba layers.
ordered_json mamba2_json(const Mamba2Config& mamba2) {
  const auto& [heads, groups, head_dim, state_dim, taps, least_step, most_step, bias, conv_bias, normed, gate_first,
               scales, beside_attention, layers] = mamba2;
  if (heads == 0) return {};
  ordered_json json = {{"mamba_n_heads", heads},
                       {"mamba_n_groups", groups},
                       {"mamba_d_head", head_dim},
                       {"mamba_d_state", state_dim},
                       {"mamba_d_conv", taps},
                       {"least_step", least_step},
                       {"most_step", std::isfinite(most_step) ? ordered_json(most_step) : ordered_json()},
                       {"mamba_proj_bias", bias},
                       {"mamba_conv_bias", conv_bias},
                       {"layers", layers}};
  // Absent in checkpoints of versions that had none of these.
  if (!normed) json["mamba_rms_norm"] = false;
  if (!gate_first) json["mamba_norm_before_gate"] = true;
  if (scales != Mamba2Config().scales) json["ssm_multipliers"] = scales;
  if (beside_attention) json["beside_attention"] = true;
  return json;
}

// null for a model without gated convolutions.
ordered_json gated_conv_json(const GatedConvConfig& conv) {
  const auto& [taps, bias, layers] = conv;
  if (taps == 0) return {};
  return {{"conv_L_cache", taps}, {"conv_bias", bias}, {"layers", layers}};
}

// null if all are 1.
ordered_json scales_json(const MatmulScales& scales) {
  const auto& [attention_out, mamba_out, mlp_in, mlp_out] = scales;
  const ordered_json json = {
      {"attention_out", attention_out}, {"mamba_out", mamba_out}, {"mlp_in", mlp_in}, {"mlp_out", mlp_out}};
  const bool none = attention_out == 1 && mamba_out == 1 && mlp_in == 1 && mlp_out == 1;
  return none ? ordered_json() : json;
}

// null for a dense model.
ordered_json experts_json(const ExpertsConfig& experts) {
  const auto& [count, chosen, ff, shared_ff, shared_gate, layers, score, router_bias, choice_bias, groups, kept_groups,
               weight_scale, bias, gate, aux_coef, aux_in_loss, beside_mlp] = experts;
  const auto& [activation, limit, up_offset] = gate;
  if (count == 0) return {};
  ordered_json json = {{"num_experts", count},
                       {"num_experts_per_tok", chosen},
                       {"moe_intermediate_size", ff},
                       {"layers", layers},
                       {"score", score_name(score)},
                       {"router_bias", router_bias},
                       {"bias", bias},
                       {"hidden_act", activation_name(activation)},
                       {"swiglu_limit", limit},
                       {"up_offset", up_offset},
                       {"router_aux_loss_coef", aux_coef},
                       {"output_router_logits", aux_in_loss}};
  // Absent in checkpoints of versions that had none of these.
  if (beside_mlp) json["beside_mlp"] = true;
  if (shared_ff > 0) json.update({{"shared_expert_intermediate_size", shared_ff}, {"shared_expert_gate", shared_gate}});
  if (score == RouterScore::sigmoid)
    json.update({{"choice_bias", choice_bias},
                 {"n_group", groups},
                 {"topk_group", kept_groups},
                 {"routed_scaling_factor", weight_scale}});
  else if (weight_scale != 1)
    json["routed_scaling_factor"] = weight_scale;
  return json;
}

// null for a model without latent attention.
ordered_json latent_json(const LatentConfig& latent) {
  const auto& [kv_rank, q_rank, plain, turning, value, pairs] = latent;
  if (kv_rank == 0) return {};
  return {{"kv_lora_rank", kv_rank},     {"q_lora_rank", q_rank}, {"qk_nope_head_dim", plain},
          {"qk_rope_head_dim", turning}, {"v_head_dim", value},   {"rope_interleave", pairs}};
}

}  // namespace

std::vector<ModelField> model_fields(const ModelConfig& config) {
  // Structured bindings keep this list complete: a new field of either struct does not compile until it is bound here.
  // Every bound name must then be used below, or be discarded with the reason.
  const auto& [architecture, part_of, embedding_module, norm_module, vocab, hidden, ff, layers, heads, kv_heads,
               head_dim, full_heads, max_position, norm_eps, norm_offset, norm_centred, init_std, pad_id, tied,
               qkv_bias, o_bias, mlp_bias, qk_norm, qk_norm_spans, attention_gate, v_norm, kv_readers, wide_readers,
               layer_input, layer_input_cols, activation, embedding_scale, attention_scale, attention_cap, branch_scale,
               logits_scale, logits_cap, rope, window_rope, window, no_rope, sinks, delta_net, mamba2, gated_conv,
               no_mixer, scales, latent, experts, dtype, mxfp4_experts, fp8_exceptions] = config;
  const auto& [scaling, theta, factor, low_freq_factor, high_freq_factor, original_max_position, beta_fast, beta_slow,
               attention_factor, truncate, rotary_dim, short_factor, long_factor, pairs, query_growth, proportion] =
      rope;
  // how the values are stored does not change the model
  static_cast<void>(std::tie(mxfp4_experts, fp8_exceptions));
  static_cast<void>(layer_input_cols);  // follows from layer_input
  static_cast<void>(part_of);           // nor do the parts that are not trained
  static_cast<void>(
      std::tie(embedding_module, norm_module, norm_centred, qk_norm_spans));  // the architecture says them
  return {
      {"architectures", architecture, true},
      {"vocab_size", vocab, true},
      {"hidden_size", hidden, true},
      {"intermediate_size", ff, true},
      {"num_hidden_layers", layers, true},
      {"num_attention_heads", heads, true},
      {"num_key_value_heads", kv_heads, true},
      {"head_dim", head_dim, true},
      {"full_attention_heads", full_heads ? heads_json(*full_heads) : ordered_json(), true},
      {"max_position_embeddings", max_position, false},
      {"rms_norm_eps", norm_eps, true},
      {"norm_offset", norm_offset, true},
      {"initializer_range", init_std, false},
      {"pad_token_id", pad_id, true},
      {"tie_word_embeddings", tied, true},
      {"qkv_bias", qkv_bias, true},
      {"o_bias", o_bias, true},
      {"mlp_bias", mlp_bias, true},
      {"qk_norm", qk_norm, true},
      {"attention_gate", attention_gate, true},
      {"v_norm", v_norm, true},
      {"num_kv_shared_layers", kv_readers, true},
      {"use_double_wide_mlp", wide_readers, true},
      {"hidden_size_per_layer_input", layer_input, true},
      {"hidden_act", activation_name(activation), true},
      {"embedding_scale", embedding_scale, true},
      {"attention_scale", attention_scale, true},
      {"branch_scale", branch_scale, true},
      {"logits_scale", logits_scale, true},
      {"final_logit_softcapping", logits_cap, true},
      {"sliding_window", window, true},
      {"no_rope_layers", no_rope, true},
      {"sinks", sinks, true},
      {"delta_net", delta_net_json(delta_net), true},
      {"experts", experts_json(experts), true},
      {"torch_dtype", dtype ? ordered_json(dtype_name(*dtype)) : ordered_json(), false},
      {"rope_type", scaling_name(scaling), true},
      {"rope_theta", theta, true},
      {"rope_scaling.factor", factor, true},
      {"rope_scaling.low_freq_factor", low_freq_factor, true},
      {"rope_scaling.high_freq_factor", high_freq_factor, true},
      {"rope_scaling.original_max_position_embeddings", original_max_position, true},
      {"rope_scaling.beta_fast", beta_fast, true},
      {"rope_scaling.beta_slow", beta_slow, true},
      {"rope_scaling.attention_factor", attention_factor, true},
      {"rope_scaling.truncate", truncate, true},
      {"rotary_dim", rotary_dim, true},
      {"rope_scaling.short_factor", short_factor, true},
      {"rope_scaling.long_factor", long_factor, true},
      {"rope_pairs", pairs, true},
      {"query_growth", query_growth, true},
      {"rope_parameters.partial_rotary_factor", proportion, true},
      {"rope_parameters.sliding_attention", window_rope ? rope_json(*window_rope) : ordered_json(), true},
      {"mamba2", mamba2_json(mamba2), true},
      {"gated_conv", gated_conv_json(gated_conv), true},
      {"layers_without_mixer", no_mixer, true},
      {"attn_logit_softcapping", attention_cap, true},
      {"multipliers", scales_json(scales), true},
      {"latent_attention", latent_json(latent), true},
  };
}

}  // namespace megatrain
