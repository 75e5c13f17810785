#include "megatrain/model/expert_family.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/channels/experts.h"
#include "megatrain/model/dense_family.h"
#include "megatrain/model/trained/adapter.h"

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
        .name = prefix + "mlp.experts" + of, .rows = rows, .first_row = first_row, .row_step = as.row_step};
  };
  const auto weight = [&](int operand, const char* module, int64_t rows, int64_t cols, const Stored& as,
                          ExpertParameter in) {
    tensors.push_back({.name = name(module, "weight"),
                       .rows = rows,
                       .cols = cols,
                       .operand = operand,
                       .stored = as,
                       .parameter = std::move(in)});
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
  using At = ExpertOperand;
  const Stored gate = stored(".gate_up_proj", 2 * ff, 0, 2, true), up = stored(".gate_up_proj", 2 * ff, 1, 2, true);
  weight(At::gate_up, names.gate, ff, c.hidden, gate, parameter(".gate_up_proj", 2 * ff, 0, gate));
  weight(At::gate_up, names.up, ff, c.hidden, up, parameter(".gate_up_proj", 2 * ff, ff, up));
  bias(At::gate_up_bias, names.gate, ff, stored(".gate_up_proj_bias", 2 * ff, 0, 2, false));
  bias(At::gate_up_bias, names.up, ff, stored(".gate_up_proj_bias", 2 * ff, 1, 2, false));
  const Stored down = stored(".down_proj", c.hidden, 0, 1, true);
  weight(At::down, names.down, c.hidden, ff, down, parameter(".down_proj", c.hidden, 0, down));
  bias(At::down_bias, names.down, c.hidden, stored(".down_proj_bias", c.hidden, 0, 1, false));
  return tensors;
}

}  // namespace

std::vector<std::string> expert_fields(std::vector<std::string> more) {
  for (const char* field :
       {"num_experts", "num_local_experts", "num_experts_per_tok", "output_router_logits", "router_aux_loss_coef"})
    more.emplace_back(field);
  return more;
}

void read_experts(const ConfigReader& r, const AbsentExperts& absent, ModelConfig& c) {
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
  for (int64_t index = 0; index < c.experts.count; ++index) lists.push_back(tensors_of_expert(c, prefix, names, index));
  return lists;
}

std::vector<std::unique_ptr<const Phase>> expert_phases(const ModelConfig& config, const ModelShape& shape,
                                                        int64_t layer, std::span<const LayerLayout> records) {
  const LinearTensors from(records.front(), adapters_among(records));
  const auto groups = records.subspan(1, records.size() - (from.adapters ? 2 : 1));
  const auto first_adapters = std::ranges::find_if(groups, adapts_experts) - groups.begin();
  Block::Channels channels;
  channels.push_back(std::make_unique<Experts>(config.experts, shape.dtype, from,
                                               groups.first(static_cast<size_t>(first_adapters)),
                                               groups.subspan(static_cast<size_t>(first_adapters))));
  return one_block(config, shape, from, attention_of(config, shape, layer, from), std::move(channels));
}

}  // namespace megatrain
