// Makes from a configuration everything a run is based on: the device and its ops, the workload, the budgets, the plan.
#pragma once

#include <memory>
#include <string>

#include "megatrain/config/config.h"
#include "megatrain/device/device.h"
#include "megatrain/engine/disk_tier.h"
#include "megatrain/machine/machine_profile.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/layers/layer.h"
#include "megatrain/model/trained/train_rules.h"
#include "megatrain/ops/ops.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

struct Machine {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
  DiskSettings disk;
};

// The ops for the device's kind.
std::unique_ptr<Ops> make_ops(Device& device, int64_t threads);

// Throws Error(bad_config) if the GPU is requested but cannot be used.
void check_device(const std::string& name);

// `device`: auto (CUDA if available, else the CPU with one log line saying why), cpu or cuda. Throws Error(bad_config).
Machine open_machine(const std::string& device, int64_t threads);

// Everything that changes bits, apart from data and seed. Chosen once, saved in the run directory and every checkpoint.
struct RunIdentity {
  DType dtype = DType::bf16;
  int64_t micro_tokens = 0;
  int64_t head_chunk = 0;
  int64_t mlp_chunk = 0;
  TrainRules trained;
  StateFormat state;
  std::string library;        // Ops::library()
  AlgorithmTable algorithms;  // for every GEMM of a step; choose_algorithms() fills both
  bool operator==(const RunIdentity&) const = default;
};
// The shape of the model's phases in a run; `positions` is the longest sequence.
ModelShape model_shape(const RunIdentity& identity, int64_t positions, int64_t experts_per_record = 0);

// Tokens that go through a block at a time, except in attention itself.
int64_t mlp_chunk_of(const TrainConfig& config);

// Those of the configuration; without a rank if it asks for none. `from_file`: they were read from a PEFT directory.
AdapterRules adapter_rules(const TrainConfig::Adapter& adapter, bool from_file);

RunIdentity make_identity(const TrainConfig& config, const ModelConfig& model);

// Warns if seq_len exceeds what the model was made for: its max_position_embeddings, or the reach of its rope_scaling.
void warn_of_long_sequences(const TrainConfig& config, const ModelConfig& model);

// The coefficients of the router losses: those of the configuration, or config.json's if the model's own loss includes
// the load-balancing one. Throws Error(bad_config) if they are given for a model without experts.
struct RouterLosses {
  double aux = 0, z = 0;
  bool from_model = false;  // aux comes from config.json
};
RouterLosses router_losses(const TrainConfig& config, const ModelConfig& model);

// The longest sequence and the most documents of a micro-batch, which bound the ops' scratch.
OpsShape ops_shape(const TrainConfig& config, const ModelConfig& model, const RunIdentity& identity);

// The machine a run is planned for: this one, or one known only by its profile (train/planned_machine.h).
struct PlannedMachine {
  MachineProfile profile;
  bool gpu = true;
  Budgets budgets;                // used if the configuration gives none
  Budgets limits = {};            // the most that a configuration may give; 0: unknown
  int64_t device_base_bytes = 0;  // held by the driver
  int64_t host_base_bytes = 0;    // held by the process
  Ops* ops = nullptr;             // the device's, if it is present
  bool base_files = true;         // files of the model are on a drive from which a run can read its frozen weights
  int64_t prompt_tokens = 0;      // of the longest of sample.prompts, if a tokenizer counted them; 0: unknown
};

// Whether a run may read frozen weights from the files in this directory while it trains. Unless memory.base is files,
// they must be on a drive of this machine.
bool base_may_stay(const TrainConfig& config, const std::string& directory);

// Scratch bytes that the ops need. Queried from the device's ops if they exist, otherwise an upper bound.
int64_t scratch_bytes(const OpsShape& shape, const PlannedMachine& planned);

// `stored` as in make_model(); `experts_per_record` as in Workload (train/expert_groups.h).
Workload make_workload(const TrainConfig& config, const ModelConfig& model, const RunIdentity& identity,
                       const PlannedMachine& planned, const TensorTypes& stored, int64_t experts_per_record);

DiskSettings disk_settings(const TrainConfig& config);
// Throws, as check_scratch_place does, if the configuration names a disk that cannot be used.
void check_disk(const TrainConfig& config);

// The configuration's budgets; where it gives none, the machine's. Throws Error(cannot_fit) for a budget above the
// machine's limits.
Budgets make_budgets(const TrainConfig& config, const PlannedMachine& planned);
// Sets every budget above the machine's limits to "auto". Returns the options that do so, such as "--memory.host=auto";
// empty if no budget is above its limit.
std::string drop_budgets_beyond(const PlannedMachine& planned, TrainConfig& config);

// The number of experts per record in the plan in this file.
int64_t read_planned_experts_per_record(const std::string& path);

// The plan that the configuration names, or the planner's; checked against workload and budgets.
Plan choose_plan(const TrainConfig& config, const Workload& workload, const Budgets& budgets,
                 const MachineProfile& machine, std::vector<std::string>* notes);

}  // namespace megatrain
