#include "megatrain/model/parts/expert_family.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/layers/channels/experts.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/trained/adapter.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

constexpr int64_t kMaxExperts = int64_t{1} << 14;  // far above any model

// transformers reads either of two names for the same number.
int64_t read_count(const ConfigReader& r, int64_t absent) {
  const int64_t own = r.positive("num_experts", r.positive("num_local_experts", absent, kMaxExperts), kMaxExperts);
  if (r.positive("num_local_experts", own, kMaxExperts) != own)
    fail_input(
        fmt::format("{}: 'num_experts' is {} and 'num_local_experts' is {}, which are two names for one number; remove "
                    "the wrong one",
                    r.where(), own, r.at("num_local_experts").dump()));
  return own;
}

// One expert's tensors, in the order of their operands.
std::vector<TensorSpec> tensors_of_expert(const ModelConfig& c, const std::string& prefix, const ExpertNames& names,
                                          int64_t index) {
  const std::string experts = prefix + names.experts;
  const int64_t ff = c.experts.ff;
  std::vector<TensorSpec> tensors;
  const auto stored = [&](const char* name, int64_t rows, int64_t first, int64_t step, bool matrix) {
    if (!names.fused) return Stored{};
    return Stored{.name = experts + name,
                  .slices = c.experts.count,
                  .index = index,
                  .rows = rows,
                  .first_row = first,
                  .row_step = step,
                  .transposed = matrix,
                  .mxfp4 = matrix};
  };
  const auto name = [&](const char* module, const char* kind) {
    return fmt::format("{}.{}.{}.{}", experts, index, module, kind);
  };
  // transformers has all experts of a layer in two parameters, whatever files have.
  const auto parameter = [&](const char* of, int64_t rows, int64_t first_row, const Stored& as) {
    return ExpertParameter{
        .name = prefix + names.parameter + of, .rows = rows, .first_row = first_row, .row_step = as.row_step};
  };
  const auto of_all = [&](const char* in, int64_t rows, int64_t first) {
    return Stored{.name = prefix + in, .slices = c.experts.count, .index = index, .rows = rows, .first_row = first};
  };
  const auto weight = [&](int operand, const char* module, int64_t rows, int64_t cols, const Stored& as,
                          const ExpertParameter& in) {
    tensors.push_back({.name = name(module, "weight"),
                       .rows = rows,
                       .cols = cols,
                       .operand = operand,
                       .stored = as,
                       .parameter = in});
    const Stored stacked{
        .name = in.name, .slices = c.experts.count, .index = index, .rows = in.rows, .first_row = in.first_row};
    if (names.stacked) tensors.back().stored = stacked;
    if (names.or_stacked) tensors.back().or_stored = stacked;
  };
  const auto bias = [&](int operand, const char* module, int64_t size, const Stored& as) {
    if (!c.experts.bias) return;
    tensors.push_back({.name = name(module, "bias"),
                       .rows = 1,
                       .cols = size,
                       .role = TensorRole::bias,
                       .operand = operand,
                       .stored = as});
  };
  using At = BlockOperand;
  const bool of_layer = names.stored_down[0] != 0;
  const Stored gate = of_layer ? of_all(names.stored_gate_up, 2 * ff, 0) : stored(".gate_up_proj", 2 * ff, 0, 2, true);
  const Stored up = of_layer ? of_all(names.stored_gate_up, 2 * ff, ff) : stored(".gate_up_proj", 2 * ff, 1, 2, true);
  if (names.gate[0] != 0) {
    weight(At::expert_gate_up, names.gate, ff, c.hidden, gate, parameter(".gate_up_proj", 2 * ff, 0, gate));
    weight(At::expert_gate_up, names.up, ff, c.hidden, up, parameter(".gate_up_proj", 2 * ff, ff, up));
  } else {
    weight(At::expert_gate_up, names.up, ff, c.hidden, {}, parameter(".up_proj", ff, 0, {}));
  }
  bias(At::expert_gate_up_bias, names.gate, ff, stored(".gate_up_proj_bias", 2 * ff, 0, 2, false));
  bias(At::expert_gate_up_bias, names.up, ff, stored(".gate_up_proj_bias", 2 * ff, 1, 2, false));
  const Stored down = of_layer ? of_all(names.stored_down, c.hidden, 0) : stored(".down_proj", c.hidden, 0, 1, true);
  weight(At::expert_down, names.down, c.hidden, ff, down, parameter(".down_proj", c.hidden, 0, down));
  bias(At::expert_down_bias, names.down, c.hidden, stored(".down_proj_bias", c.hidden, 0, 1, false));
  return tensors;
}

// The expert that every token has is the MLP of the block's first record.
void add_shared_expert(const ModelConfig& c, const std::string& prefix, const ExpertNames& names,
                       std::vector<TensorSpec>& to) {
  const int64_t ff = c.experts.shared_ff;
  const auto weight = [&](int operand, const std::string& name, int64_t rows, int64_t cols) {
    to.push_back({.name = prefix + name + ".weight", .rows = rows, .cols = cols, .operand = operand});
  };
  const std::string shared = names.shared;
  using At = BlockOperand;
  if (names.shared_down[0] != 0) {
    weight(At::gate_up, names.shared_gate_up, 2 * ff, c.hidden);
    weight(At::down, names.shared_down, c.hidden, ff);
    return;
  }
  if (names.gate[0] != 0) weight(At::gate_up, shared + "." + names.gate, ff, c.hidden);
  weight(At::gate_up, shared + "." + names.up, ff, c.hidden);
  weight(At::down, shared + "." + names.down, c.hidden, ff);
  if (c.experts.shared_gate) weight(At::row_gate, names.shared_gate, 1, c.hidden);
}

}  // namespace

std::vector<std::string> expert_fields(std::vector<std::string> more) {
  for (const char* field :
       {"num_experts", "num_local_experts", "num_experts_per_tok", "output_router_logits", "router_aux_loss_coef"})
    more.emplace_back(field);
  return more;
}

void read_experts(const ConfigReader& r, const AbsentExperts& absent, ModelConfig& c) {
  for (const char* key : {"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size"})
    r.refuse_null(key);
  ExpertsConfig& e = c.experts;
  e.count = read_count(r, absent.count);
  e.chosen = r.positive("num_experts_per_tok", absent.chosen);
  if (e.chosen > e.count)
    fail_input(
        fmt::format("{}: 'num_experts_per_tok' is {}, but there are only {} experts", r.where(), e.chosen, e.count));
  e.layers.assign(static_cast<size_t>(c.layers), true);
  e.aux_in_loss = r.boolean("output_router_logits", false);
  e.aux_coef = r.number("router_aux_loss_coef", 0.001);
  if (e.aux_coef < 0)
    fail_input(fmt::format("{}: 'router_aux_loss_coef' is {}; it must not be negative", r.where(), e.aux_coef));
}

std::vector<std::string> sigmoid_expert_fields(std::vector<std::string> more) {
  for (const char* field : {"moe_intermediate_size", "n_group", "n_routed_experts", "n_shared_experts",
                            "norm_topk_prob", "num_experts_per_tok", "num_local_experts", "num_mtp_layers",
                            "num_nextn_predict_layers", "output_router_logits", "routed_scaling_factor", "topk_group"})
    more.emplace_back(field);
  return more;
}

void read_sigmoid_experts(const ConfigReader& r, const AbsentSigmoidExperts& absent, ModelConfig& c) {
  for (const char* key : {"n_routed_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size",
                          "n_shared_experts", "routed_scaling_factor", "n_group", "topk_group"})
    r.refuse_null(key);
  ExpertsConfig& e = c.experts;
  e.count = r.positive("n_routed_experts", r.positive("num_local_experts", absent.count, kMaxExperts), kMaxExperts);
  if (r.positive("num_local_experts", e.count, kMaxExperts) != e.count)
    fail_input(
        fmt::format("{}: 'n_routed_experts' is {} and 'num_local_experts' is {}, which are two names for one "
                    "number; remove the wrong one",
                    r.where(), e.count, r.at("num_local_experts").dump()));
  e.chosen = r.positive("num_experts_per_tok", absent.chosen);
  e.ff = r.positive("moe_intermediate_size", absent.ff, kMaxWidth);
  e.shared_ff = e.ff * r.positive("n_shared_experts", 1, kMaxExperts);
  e.score = RouterScore::sigmoid;
  e.choice_bias = true;
  e.weight_scale = r.positive_number("routed_scaling_factor", absent.weight_scale);
  must_be(r, "norm_topk_prob", true, c.architecture);
  // Its load is balanced by the bias of its choice; transformers has no loss for it.
  must_be(r, "output_router_logits", false, c.architecture);
  e.groups = r.positive("n_group", absent.groups);
  e.kept_groups = r.positive("topk_group", absent.kept_groups);
  const int64_t size = e.count % e.groups == 0 ? e.count / e.groups : 0;
  if (size < 2 || e.kept_groups > e.groups || e.chosen > e.kept_groups * size)
    fail_input(
        fmt::format("{}: {} experts in {} groups, of which a token chooses {} from {}: expected groups of equal "
                    "sizes, of two experts or more, and enough in those that are kept; correct "
                    "'n_routed_experts', 'n_group', 'num_experts_per_tok' or 'topk_group'",
                    r.where(), e.count, e.groups, e.chosen, e.kept_groups));
}

std::vector<bool> read_dense_first(const ConfigReader& r, int64_t layers, int64_t absent) {
  r.refuse_null("first_k_dense_replace");
  const int64_t dense = r.has("first_k_dense_replace") ? r.not_negative("first_k_dense_replace", 1) : absent;
  std::vector<bool> experts;
  for (int64_t l = 0; l < layers; ++l) experts.push_back(l >= dense);
  return experts;
}

std::vector<std::vector<TensorSpec>> sigmoid_expert_tensors(const ModelConfig& c, int64_t layer) {
  if (!c.experts.in_layer(layer)) return dense_tensors(c, layer);
  return expert_tensors(c, layer,
                        {.router = "mlp.gate",
                         .experts = "mlp.experts",
                         .gate = "gate_proj",
                         .up = "up_proj",
                         .down = "down_proj",
                         .shared = "mlp.shared_experts"});
}

std::vector<bool> read_sparse_layers(const ConfigReader& r, int64_t layers) {
  const int64_t step = r.positive("decoder_sparse_step", 1);
  std::vector<bool> experts;
  for (int64_t l = 0; l < layers; ++l) experts.push_back((l + 1) % step == 0);
  if (!r.has("mlp_only_layers")) return experts;
  const nlohmann::json& dense = r.at("mlp_only_layers");
  const bool listed = dense.is_array() && std::all_of(dense.begin(), dense.end(), [](const nlohmann::json& layer) {
                        return layer.is_number_integer() && layer >= 0;
                      });
  if (!listed)
    fail_input(fmt::format("{}: 'mlp_only_layers' is {}; it must list numbers of layers", r.where(),
                           dense.dump().substr(0, 80)));
  for (const nlohmann::json& layer : dense) {  // a number past the last layer is ignored, as in transformers
    if (layer < layers) experts[layer.get<size_t>()] = false;
  }
  return experts;
}

std::vector<std::vector<TensorSpec>> expert_tensors(const ModelConfig& c, int64_t layer, const ExpertNames& names) {
  const std::string prefix = fmt::format("model.layers.{}.", layer), router = prefix + names.router;
  std::vector<std::vector<TensorSpec>> lists = {attention_tensors(c, layer)};
  const auto row = [&](int operand, const std::string& name, int64_t size) {
    lists.front().push_back({.name = name, .rows = 1, .cols = size, .role = TensorRole::bias, .operand = operand});
  };
  lists.front().push_back(
      {.name = router + ".weight", .rows = c.experts.count, .cols = c.hidden, .operand = BlockOperand::router});
  if (c.experts.router_bias) row(BlockOperand::router_bias, router + ".bias", c.experts.count);
  if (c.sinks) row(BlockOperand::sinks, prefix + "self_attn.sinks", c.heads);
  if (c.experts.shared_ff > 0) add_shared_expert(c, prefix, names, lists.front());
  if (c.experts.choice_bias)
    lists.push_back(
        {{.name = names.choice_bias[0] != 0 ? prefix + names.choice_bias : router + ".e_score_correction_bias",
          .rows = 1,
          .cols = c.experts.count,
          .role = TensorRole::buffer,
          .operand = BlockOperand::choice_bias,
          .dtype = DType::f32}});
  for (int64_t index = 0; index < c.experts.count; ++index) lists.push_back(tensors_of_expert(c, prefix, names, index));
  return lists;
}

std::vector<std::unique_ptr<const Phase>> expert_phases(const ModelConfig& config, const ModelShape& shape,
                                                        int64_t layer, std::span<const LayerLayout> records) {
  const LinearTensors from(records.front(), adapters_among(records));
  const bool buffers = records[1].is_buffers();
  const size_t before = buffers ? 2 : 1;
  const auto groups = records.subspan(before, records.size() - before - (from.adapters ? 1 : 0));
  const auto first_adapters = std::ranges::find_if(groups, adapts_experts) - groups.begin();
  Block::Channels channels;
  if (config.experts.shared_ff > 0) channels.push_back(mlp_of(config, shape, from));
  channels.push_back(
      std::make_unique<Experts>(config.experts, shape.dtype,
                                Experts::Records{.first = from,
                                                 .buffers = buffers ? &records[1] : nullptr,
                                                 .groups = groups.first(static_cast<size_t>(first_adapters)),
                                                 .adapters = groups.subspan(static_cast<size_t>(first_adapters))}));
  return one_block(config, shape, from, attention_of(config, shape, layer, from), std::move(channels));
}

std::vector<std::unique_ptr<const Phase>> layer_phases(const ModelConfig& config, const ModelShape& shape,
                                                       int64_t layer, std::span<const LayerLayout> records) {
  return (config.experts.in_layer(layer) ? expert_phases : dense_phases)(config, shape, layer, records);
}

std::string unlike_all_experts(const ModelConfig& c) {
  if (std::ranges::count(c.experts.layers, false) == 0) return "";
  return "with dense layers between those with experts (mlp_only_layers, decoder_sparse_step)";
}

}  // namespace megatrain
