// From a configuration to what a run stands on: the device and its ops, the workload, the budgets, the plan.
#pragma once

#include <memory>
#include <string>

#include "megatrain/config/config.h"
#include "megatrain/device/device.h"
#include "megatrain/engine/disk_tier.h"
#include "megatrain/machine/machine_profile.h"
#include "megatrain/model/config.h"
#include "megatrain/model/freeze.h"
#include "megatrain/model/layer.h"
#include "megatrain/ops/ops.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

struct Machine {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
  DiskSettings disk;
};

// The ops of the device's kind.
std::unique_ptr<Ops> make_ops(Device& device, int64_t threads);

// Throws Error(bad_config) when the GPU is asked for and cannot be used.
void check_device(const std::string& name);

// `device`: auto (CUDA if there is one, else the CPU with one line saying why), cpu, cuda. Throws Error(bad_config).
Machine open_machine(const std::string& device, int64_t threads);

// Everything that changes bits beside data and seed. Chosen once, kept in the run directory and every checkpoint.
struct RunIdentity {
  DType dtype = DType::bf16;
  int64_t micro_tokens = 0;
  int64_t head_chunk = 0;
  int64_t mlp_chunk = 0;
  FreezeRules freezing;
  StateFormat state;
  std::string library;        // Ops::library()
  AlgorithmTable algorithms;  // of every product of a step; both are filled by choose_algorithms()
  bool operator==(const RunIdentity&) const = default;
};
// Of the model's phases in a run; `positions` is the longest sequence.
ModelShape model_shape(const RunIdentity& identity, int64_t positions, int64_t experts_per_record = 0);

// Tokens of one pass through a block, attention itself apart.
int64_t mlp_chunk_of(const TrainConfig& config);

RunIdentity make_identity(const TrainConfig& config, const ModelConfig& model);

// Warns where seq_len exceeds what the model was made for: its max_position_embeddings, or its rope_scaling's reach.
void warn_of_long_sequences(const TrainConfig& config, const ModelConfig& model);

// The coefficients of the router's losses: what the configuration gives, or config.json's where the loss of its model
// holds the one that balances experts. Throws Error(bad_config) when they are given for a model without experts.
struct RouterLosses {
  double aux = 0, z = 0;
  bool from_model = false;  // the first is config.json's
};
RouterLosses router_losses(const TrainConfig& config, const ModelConfig& model);

// The longest sequence and the most documents a micro-batch can hold bound the ops' scratch.
OpsShape ops_shape(const TrainConfig& config, const ModelConfig& model, const RunIdentity& identity);

// Where a run is, or would be: this machine, or one that is known by its profile alone (train/site.h).
struct Site {
  MachineProfile profile;
  bool gpu = true;
  Budgets budgets;                // what a run may take where its configuration does not say
  Budgets limits = {};            // what its configuration may say at most; 0: not known
  int64_t device_base_bytes = 0;  // what the driver holds
  int64_t host_base_bytes = 0;    // what the process holds
  Ops* ops = nullptr;             // of the device, where it is there to be asked
  int64_t prompt_tokens = 0;      // of the longest of sample.prompts, where a tokenizer has counted them; 0: not known
};

// Of a device's ops: asked of them, or where they are not there to be asked, a bound.
int64_t scratch_bytes(const OpsShape& shape, const Site& site);

// `stored` as make_model() takes it; `experts_per_record` as Workload has it (train/expert_groups.h).
Workload make_workload(const TrainConfig& config, const ModelConfig& model, const RunIdentity& identity,
                       const Site& site, const TensorTypes& stored, int64_t experts_per_record);

DiskSettings disk_settings(const TrainConfig& config);
// Throws, as check_scratch_place does, when the configuration names a disk that cannot be used.
void check_disk(const TrainConfig& config);

// The configuration's budgets, or what the site has. Throws Error(cannot_fit) for one above the site's limits.
Budgets make_budgets(const TrainConfig& config, const Site& site);
// Makes every budget above the site's limits "auto". Returns the options that do so, "--memory.host=auto"; empty: none.
std::string drop_budgets_beyond(const Site& site, TrainConfig& config);

// How the plan in this file cuts experts into records.
int64_t read_planned_experts_per_record(const std::string& path);

// The plan the configuration names, or the planner's; checked against workload and budgets.
Plan choose_plan(const TrainConfig& config, const Workload& workload, const Budgets& budgets,
                 const MachineProfile& machine, std::vector<std::string>* notes);

}  // namespace megatrain
