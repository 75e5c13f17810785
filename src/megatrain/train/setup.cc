#include "megatrain/train/setup.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/io/given_json.h"
#include "megatrain/io/file_system.h"
#include "megatrain/io/json.h"
#include "megatrain/model/files/base_files.h"
#include "megatrain/model/layers/mixers/attention.h"
#include "megatrain/model/layers/mixers/delta_net.h"
#include "megatrain/model/layers/mixers/mamba2.h"
#include "megatrain/model/model.h"
#include "megatrain/ops/attention_cut.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/planner.h"
#include "megatrain/train/model_work.h"
#include "megatrain/train/sampling.h"
#include "megatrain/train/planned_machine.h"
#include "megatrain/train/step_program.h"

namespace megatrain {

std::unique_ptr<Ops> make_ops(Device& device, int64_t threads) {
  if (device.kind() == DeviceKind::cuda) return make_cuda_ops(device);
  return make_cpu_ops({.threads = static_cast<int>(threads)});
}

namespace {

[[noreturn]] void refuse_device(const std::string& why) {
  fail_config("device: cuda was requested, but " + why +
              "; use --device=cpu, or --device=auto to use what is available");
}

}  // namespace

void check_device(const std::string& name) {
  std::string why;
  if (name == "cuda" && !make_cuda_device(&why)) refuse_device(why);
}

Machine open_machine(const std::string& name, int64_t threads) {
  Machine machine;
  std::string why;
  if (name != "cpu") machine.device = make_cuda_device(&why);
  if (!machine.device && name == "cuda") refuse_device(why);
  if (!machine.device) {
    if (name == "auto") log_info("no CUDA device (" + why + "): computing on the CPU");
    machine.device = make_cpu_device();
  }
  machine.ops = make_ops(*machine.device, threads);
  return machine;
}

ModelShape model_shape(const RunIdentity& identity, int64_t positions, int64_t experts_per_record) {
  return {.dtype = identity.dtype,
          .tokens = identity.micro_tokens,
          .mlp_chunk = identity.mlp_chunk,
          .head_chunk = identity.head_chunk,
          .positions = positions,
          .experts_per_record = experts_per_record,
          .state = identity.state};
}

namespace {

StateFormat state_format(const TrainConfig& config) {
  StateFormat format;
  for (const MomentFormat moments : {MomentFormat::bf16, MomentFormat::int8}) {
    if (config.state.moments == moments_name(moments)) format.moments = moments;
  }
  if (config.state.master == master_name(MasterFormat::stochastic)) format.master = MasterFormat::stochastic;
  return format;
}

// Cuts a long micro-batch into equal parts, so that the per-token memory of a block does not grow with it.
int64_t default_chunk(int64_t tokens) {
  constexpr int64_t kWhole = 32768, kPart = 16384;
  return tokens <= kWhole ? tokens : round_up(ceil_div(tokens, ceil_div(tokens, kPart)), 128);
}

}  // namespace

int64_t mlp_chunk_of(const TrainConfig& config) {
  const int64_t tokens = config.micro_batch * config.seq_len;
  return config.mlp_chunk > 0 ? std::min(config.mlp_chunk, tokens) : default_chunk(tokens);
}

AdapterRules adapter_rules(const TrainConfig::Adapter& a, bool from_file) {
  if (a.rank == 0) return {};
  return {.rank = a.rank,
          .alpha = a.alpha,
          .dropout = a.dropout,
          .rslora = a.rslora,
          .dora = a.dora,
          .bias = a.bias == "all"         ? AdapterBias::all
                  : a.bias == "lora_only" ? AdapterBias::of_adapted
                                          : AdapterBias::none,
          .init = a.init == "gaussian" ? AdapterInit::gaussian : AdapterInit::kaiming,
          .targets = a.targets,
          .target_parameters = a.target_parameters,
          .exclude = a.exclude,
          .rank_pattern = a.rank_pattern,
          .alpha_pattern = a.alpha_pattern,
          .also_train = a.also_train,
          .token_indices = a.trainable_token_indices,
          .from_file = from_file};
}

RunIdentity make_identity(const TrainConfig& config, const ModelConfig& model) {
  RunIdentity identity;
  identity.trained = {.freeze = config.freeze,
                      .train_only = config.train_only,
                      .adapter = adapter_rules(config.adapter, !config.model.adapter.empty())};
  identity.state = state_format(config);
  identity.dtype = config.precision == "fp32" ? DType::f32 : DType::bf16;
  identity.micro_tokens = config.micro_batch * config.seq_len;
  const int64_t tokens = identity.micro_tokens;
  identity.mlp_chunk = mlp_chunk_of(config);
  // the head may use the workspace that the layers need anyway
  int64_t workspace = 0;  // without adapters, whose patterns may name single layers
  const Model built = make_model(one_layer_of_each_kind(model), model_shape(identity, config.seq_len));
  for (const Layer& layer : built.layers) {
    for (const auto& phase : layer.phases) workspace = std::max(workspace, phase->workspace_bytes());
  }
  identity.head_chunk = config.head_chunk > 0 ? std::min(config.head_chunk, tokens)
                                              : default_head_chunk(model, identity.dtype, tokens, workspace);
  return identity;
}

void warn_of_long_sequences(const TrainConfig& config, const ModelConfig& model) {
  const RopeConfig& rope = model.rope;
  const double original =
      rope.original_max_position > 0 ? rope.original_max_position : static_cast<double>(model.max_position);
  const int64_t scaled = rope.scaling == RopeScaling::none ? 0 : static_cast<int64_t>(rope.factor * original);
  if (model.max_position <= 0 || config.seq_len <= std::max(model.max_position, scaled)) return;
  log_warn(
      fmt::format("{0} is {1} and the model was made for {2} (max_position_embeddings): it has not been trained on "
                  "positions beyond that. Lower {0}, or train it with a rope_scaling in its config.json",
                  config.names("seq_len"), config.seq_len, model.max_position));
}

RouterLosses router_losses(const TrainConfig& config, const ModelConfig& model) {
  const ExpertsConfig& experts = model.experts;
  const double given = config.moe.aux_loss.value_or(0);
  const bool any = std::count(experts.layers.begin(), experts.layers.end(), true) > 0;
  for (const auto& [key, value] : {std::pair{"moe.aux_loss", given}, {"moe.z_loss", config.moe.z_loss}}) {
    if (value > 0 && !any)
      fail_config(fmt::format("{} is {}, but this {} has no layer with experts; leave it out", config.names(key), value,
                              model.architecture));
  }
  if (any && experts.score == RouterScore::sigmoid &&
      (given > 0 || config.moe.z_loss > 0 || config.moe.aux_loss_of_model))
    fail_config(
        fmt::format("{}: the router of this {} has sigmoid scores and a bias that balances its choice; leave "
                    "moe.aux_loss and moe.z_loss out",
                    config.names(config.moe.z_loss > 0 ? "moe.z_loss" : "moe.aux_loss"), model.architecture));
  if (config.moe.aux_loss_of_model && !any)
    fail_config(fmt::format("{} is model, but this {} has no layer with experts; leave it out",
                            config.names("moe.aux_loss"), model.architecture));
  const bool asked = experts.aux_in_loss || config.moe.aux_loss_of_model;
  const bool from_model = any && !config.moe.aux_loss && asked && experts.aux_coef > 0;
  return {.aux = from_model ? experts.aux_coef : given, .z = config.moe.z_loss, .from_model = from_model};
}

OpsShape ops_shape(const TrainConfig& config, const ModelConfig& model, const RunIdentity& identity) {
  OpsShape shape;
  shape.dtype = identity.dtype;
  shape.tokens = identity.micro_tokens;
  shape.attention = attention_shapes(model, shape.tokens);
  shape.delta_rule = delta_rule_shape(model.delta_net, shape.tokens);
  shape.ssd = ssd_shape(model.mamba2, shape.tokens);
  shape.conv_channels = model.gated_conv.taps > 0 ? model.hidden : 0;
  shape.hidden = model.hidden;
  shape.ff = model.ff;
  const bool documents = !config.data.documents.empty() || !config.data.train.empty() || !config.data.eval.empty();
  shape.max_documents = documents ? identity.micro_tokens : config.micro_batch;
  shape.longest_document = config.seq_len;
  return shape;
}

int64_t scratch_bytes(const OpsShape& shape, const PlannedMachine& planned) {
  if (planned.ops) return planned.ops->scratch_bytes(shape);
  return planned.gpu ? cuda_scratch_bound(shape) : 0;
}

namespace {

// Whether a document is longer than a tile of attention's backward while the attention of some layer is not tiled.
bool has_whole_attention(const OpsShape& shape) {
  const int64_t longest = shape.longest_document;
  return std::ranges::any_of(shape.attention, [&](const AttentionShape& attention) {
    return attention.head_dim <= kLongestCutHead && longest > attention_tile(attention) &&
           !attention_cut(attention, 1, longest).tiled(longest);
  });
}

// Adds the memory for generating between steps, which suffices wherever the plan puts the weights. The ops' scratch is
// shared with training.
void add_generation(const TrainConfig& config, const ModelConfig& model, const RunIdentity& identity,
                    const PlannedMachine& planned, Workload& w) {
  const int64_t prompt = planned.prompt_tokens > 0 ? planned.prompt_tokens : most_prompt_tokens(config.sample);
  // on the CPU too, packed weights and weights on disk or in files are copied, as they would be to a GPU
  const bool in_place =
      !planned.gpu && config.memory.nvme_path.empty() &&
      std::ranges::all_of(w.records, [](const RecordWork& r) { return r.packed_bytes == 0 && r.file_bytes == 0; });
  const GenerationNeed need =
      CachedForward::most_needed(model, w.activation_dtype, w.experts_per_record,
                                 sample_options(config.sample, model, identity.trained.adapter, prompt), in_place);
  w.generation_bytes = need.bytes;
  w.scratch_bytes = std::max(w.scratch_bytes, scratch_bytes(need.ops, planned));
}

}  // namespace

bool base_may_stay(const TrainConfig& config, const std::string& directory) {
  return !directory.empty() && (config.memory.base == "files" || !is_network_file_system(file_system_of(directory)));
}

namespace {

// Marks the frozen records that may stay in the model's files.
void add_base_files(const TrainConfig& config, const Model& model, const TensorTypes& stored,
                    const PlannedMachine& planned, Workload& w) {
  if (config.memory.base == "host") return;
  const std::vector<LayerLayout> layouts = model.layouts();
  bool any = false;
  for (int64_t r = 0; planned.base_files && w.adapter_records() > 0 && r < w.record_count(); ++r) {
    const LayerLayout& layout = layouts[static_cast<size_t>(r)];
    if (!w.is_layer_record(r) || w.is_trained(r) || layout.low_elements > 0) continue;
    w.records[static_cast<size_t>(r)].file_bytes = file_bytes(layout, stored);
    any = any || w.may_stay_in_files(r);
  }
  if (config.memory.base == "files" && !any)
    fail_config(
        "memory.base is files, but no frozen block of this model can be read from files: its weights are random, or "
        "every block has modules that are trained whole; leave memory.base out");
}

}  // namespace

Workload make_workload(const TrainConfig& config, const ModelConfig& model, const RunIdentity& identity,
                       const PlannedMachine& planned, const TensorTypes& stored, int64_t experts_per_record) {
  const Model built =
      make_model(model, model_shape(identity, config.seq_len, experts_per_record), identity.trained, stored);
  Workload w = model_work(built, {.dtype = identity.dtype,
                                  .sequences = config.micro_batch,
                                  .seq_len = config.seq_len,
                                  .mlp_chunk = identity.mlp_chunk,
                                  .head_chunk = identity.head_chunk});
  w.experts_per_record = experts_per_record;
  w.micro_batches = config.batch / config.micro_batch;
  w.clip = config.optim.clip > 0;
  const RouterLosses losses = router_losses(config, model);
  w.aux_loss = losses.aux;
  w.z_loss = losses.z;
  w.gradients_stay = !config.dump.grads.empty();
  const OpsShape shape = ops_shape(config, model, identity);
  w.scratch_bytes = scratch_bytes(shape, planned);
  w.whole_attention = planned.gpu && has_whole_attention(shape);
  w.input_bytes = input_bytes(built, w.micro_batches, w.touched_rows(0));
  w.device_base_bytes = planned.device_base_bytes;
  w.host_base_bytes = planned.host_base_bytes;
  add_base_files(config, built, stored, planned, w);
  if (config.sample.every > 0) add_generation(config, model, identity, planned, w);
  return w;
}

DiskSettings disk_settings(const TrainConfig& config) {
  return {.place = {.directory = config.memory.nvme_path, .allow_network = config.memory.nvme_force}};
}

void check_disk(const TrainConfig& config) {
  if (!config.memory.nvme_path.empty())
    check_scratch_place(disk_settings(config).place, config.memory.nvme_bytes.value_or(0));
}

namespace {

struct BudgetKey {
  const char* name;
  const char* memory;
  std::optional<int64_t> TrainConfig::Memory::*given;
  int64_t Budgets::*bytes;
  const char* remedy;
};
constexpr BudgetKey kBudgetKeys[] = {
    {"memory.gpu", "GPU memory", &TrainConfig::Memory::gpu_bytes, &Budgets::gpu_bytes, "choose another --machine"},
    {"memory.host", "host memory", &TrainConfig::Memory::host_bytes, &Budgets::host_bytes, "give more with --ram"},
    {"memory.nvme", "disk", &TrainConfig::Memory::nvme_bytes, &Budgets::disk_bytes, "give more with --disk"},
};

bool is_beyond(const BudgetKey& key, const TrainConfig& config, const PlannedMachine& planned) {
  const int64_t limit = planned.limits.*key.bytes;
  return limit > 0 && (config.memory.*key.given).value_or(0) > limit;
}

}  // namespace

Budgets make_budgets(const TrainConfig& config, const PlannedMachine& planned) {
  Budgets budgets = planned.budgets;
  if (!config.memory.nvme_path.empty()) {
    const int64_t known = planned.limits.disk_bytes;
    budgets.disk_bytes = disk_budget(known > 0 ? known : free_scratch_bytes(config.memory.nvme_path));
  }
  for (const BudgetKey& key : kBudgetKeys) {
    if (is_beyond(key, config, planned))
      fail(ExitCode::cannot_fit,
           fmt::format("{} is {}, but the planned machine has {} of {}; lower it, leave it out to use all of it, or {}",
                       key.name, format_bytes(*(config.memory.*key.given)), format_bytes(planned.limits.*key.bytes),
                       key.memory, key.remedy));
    budgets.*key.bytes = (config.memory.*key.given).value_or(budgets.*key.bytes);
  }
  budgets.state_on_host = config.memory.state == "host";
  budgets.base_in_files = config.memory.base == "files";
  return budgets;
}

std::string drop_budgets_beyond(const PlannedMachine& planned, TrainConfig& config) {
  std::string options;
  for (const BudgetKey& key : kBudgetKeys) {
    if (!is_beyond(key, config, planned)) continue;
    (config.memory.*key.given).reset();
    options += fmt::format("{}--{}=auto", options.empty() ? "" : " ", key.name);
  }
  return options;
}

namespace {

nlohmann::json read_plan_json(const std::string& path) {
  const nlohmann::json file = read_given_json(path, "expected the output of 'megatrain plan --json'");
  return file.contains("plan") ? file.at("plan") : file;
}

}  // namespace

int64_t read_planned_experts_per_record(const std::string& path) {
  return planned_experts_per_record(read_plan_json(path), path);
}

Plan choose_plan(const TrainConfig& config, const Workload& workload, const Budgets& budgets,
                 const MachineProfile& machine, std::vector<std::string>* notes) {
  if (config.plan.empty()) return make_plan(workload, budgets, machine, notes);
  const Plan plan = plan_from_json(workload, read_plan_json(config.plan), config.plan);
  check_plan(workload, plan);
  check_fit(workload, plan, budgets);
  if (config.memory.state == "host" && std::ranges::count(plan.records, Tier::hbm, &RecordPlan::state) > 0)
    fail_config(
        fmt::format("memory.state is host, and the plan in {} keeps state on the device; leave memory.state out, "
                    "or make a plan with it",
                    config.plan));
  return plan;
}

}  // namespace megatrain
