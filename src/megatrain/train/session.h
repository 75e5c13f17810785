// A configuration opened for training: the device, the run's identity, the workload, the plan and the trainer. Each is
// made from the previous ones when it is first used.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/hub/hash.h"
#include "megatrain/io/json.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/model_source.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/train/planned_machine.h"
#include "megatrain/train/setup.h"
#include "megatrain/train/state_files.h"
#include "megatrain/train/trainer.h"

namespace megatrain {

class Session {
 public:
  // Opens the device. The first form reads the model that the configuration names.
  explicit Session(const TrainConfig& config);
  Session(const TrainConfig& config, ModelSource source);
  Session(const Session&) = delete;  // the trainer refers to the machine
  Session& operator=(const Session&) = delete;

  const TrainConfig& config() const { return config_; }
  const ModelSource& source() const { return source_; }
  const ModelConfig& model() const { return source_.config; }
  Machine& machine() { return machine_; }
  Device& device() { return *machine_.device; }
  const RunIdentity& identity() const { return identity_; }
  int threads() const { return static_cast<int>(config_.threads); }

  // Completes the identity (train/algorithms.h). Call it before anything else allocates device memory. Without it the
  // library chooses the algorithm of each GEMM again in every run, so a second run may differ in bits.
  void choose_algorithms(const nlohmann::json* saved = nullptr);

  const Workload& workload();
  // Layers alias the memory of the first `layers` ones (Workload::alias_records). Call before workload(). Throws
  // Error(bad_config) unless there are more layers than that and all have the same size.
  void alias_layers(int64_t layers);
  // Sets how many experts a record holds (Workload::experts_per_record). Call before workload().
  void group_experts(int64_t per_record) { experts_per_record_ = per_record; }
  // Sets the token count of the longest of sample.prompts (PlannedMachine::prompt_tokens). Call before workload().
  void count_prompts(int64_t longest_tokens) { prompt_tokens_ = longest_tokens; }
  Budgets budgets() const { return make_budgets(config_, this_machine(machine_, config_.threads)); }
  MachineProfile profile() const { return profile_for(machine_profile(*machine_.device), config_, model(), identity_); }

  // The plan that the configuration names, or the planner's within `budgets()`. The first call fills `notes` with the
  // compromises made to fit. Throws Error(cannot_fit).
  const Plan& plan(std::vector<std::string>* notes = nullptr);
  void use_plan(Plan plan);  // replaces that plan; throws Error(bad_config) if it is for another workload

  // Allocates everything a step needs; the records are zero until they are filled.
  Trainer& trainer();
  std::unique_ptr<Trainer> make_trainer(const Plan& plan);  // an additional one

  // Fills the trainer's records with the weights in the model's directory, or with random ones if it has none. Returns
  // the dtype that an export gives each tensor.
  // `restored`: what is trained will be read from a checkpoint, so adapters are left as they are.
  TensorTypes fill_weights(bool restored = false);

  // Writes the trainer's weights as a Hugging Face directory, with the tokenizer files and templates from `companions`
  // (empty: from the model's directory). Call Trainer::settle() first. `ready` as in ExportTexts.
  StateHash export_model(const std::string& directory, const TensorTypes& types, const std::string& companions = "",
                         const ExportReady& ready = {});

 private:
  TensorTypes fill_base(std::vector<LayerRecord>& records);
  std::string base_name() const;
  Workload workload_of(int64_t experts_per_record) const;

  TrainConfig config_;
  ModelSource source_;
  Machine machine_;
  RunIdentity identity_;
  std::optional<int64_t> experts_per_record_;
  int64_t alias_layers_ = 0;
  int64_t prompt_tokens_ = 0;
  std::optional<Workload> workload_;
  std::optional<Plan> plan_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace megatrain
