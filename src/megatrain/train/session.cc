#include "megatrain/train/session.h"

#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/train/adapter_files.h"
#include "megatrain/train/algorithms.h"
#include "megatrain/train/expert_groups.h"
#include "megatrain/train/state_files.h"

namespace megatrain {

namespace {

// config.json of an export, which states the dtype of the weights.
std::string exported_config(const ModelSource& source, DType type) {
  const std::string text = unquantised_config(source.config_text, DType::bf16);
  if (source.config.dtype) return text;
  nlohmann::json object = parse_json(text, "config.json", "expected a Hugging Face config.json");
  object["torch_dtype"] = type == DType::f32 ? "float32" : "bfloat16";
  return json_text(object, 2) + "\n";
}

}  // namespace

Session::Session(const TrainConfig& config) : Session(config, read_model_source(config)) {}

Session::Session(const TrainConfig& config, ModelSource source)
    : config_(config),
      source_(std::move(source)),
      machine_(open_machine(config.device, config.threads)),
      identity_(make_identity(config, source_.config)) {
  machine_.disk = disk_settings(config);
  machine_.disk.base = source_.directory;
  router_losses(config, source_.config);  // throws for a bad configuration before anything is built
  warn_of_long_sequences(config, source_.config);
}

void Session::choose_algorithms(const nlohmann::json* saved) {
  megatrain::choose_algorithms(config_, source_.config, machine_, saved, identity_);
}

Workload Session::workload_of(int64_t experts_per_record) const {
  PlannedMachine planned = this_machine(machine_, config_.threads);
  planned.prompt_tokens = prompt_tokens_;
  planned.base_files = base_may_stay(config_, source_.directory);
  Workload w = make_workload(config_, source_.config, identity_, planned, source_.types, experts_per_record);
  if (alias_layers_ > 0) w.alias_records = alias_layers_ * (w.layer_record_count() / model().layers);
  return w;
}

const Workload& Session::workload() {
  if (!workload_ && experts_per_record_) workload_ = workload_of(*experts_per_record_);
  if (!workload_)
    workload_ = choose_groups(config_, model(), identity_.dtype, budgets(), profile(),
                              [this](int64_t experts_per_record) { return workload_of(experts_per_record); });
  return *workload_;
}

void Session::alias_layers(int64_t layers) {
  if (layers < 1 || layers >= model().layers)
    fail_config(fmt::format("{} layers cannot share the memory of {}; expected 1 to {}", model().layers, layers,
                            model().layers - 1));
  alias_layers_ = layers;
  workload_.reset();
  const Workload aliased = workload_of(0);
  bool alike =
      aliased.layer_record_count() % model().layers == 0 && aliased.layer_record_count() + 2 == aliased.record_count();
  for (int64_t r = 0; alike && r < aliased.record_count(); ++r) {
    const RecordWork &a = aliased.record(r), &b = aliased.record(aliased.home(r));
    alike = a.elements == b.elements && a.trained == b.trained && a.low == b.low;
  }
  if (!alike)
    fail_config(fmt::format("the model's layers are not all of one size, so {} cannot share the memory of {}",
                            model().layers, layers));
}

const Plan& Session::plan(std::vector<std::string>* notes) {
  if (!plan_) {
    const MachineProfile machine = profile();
    log_info(fmt::format("planning for {}{}", machine.title(),
                         machine.measured() ? "" : "; 'megatrain doctor' measures this machine"));
    plan_ = choose_plan(config_, workload(), budgets(), machine, notes);
  }
  return *plan_;
}

void Session::use_plan(Plan plan) {
  check_plan(workload(), plan);
  plan_ = std::move(plan);
}

std::unique_ptr<Trainer> Session::make_trainer(const Plan& plan) {
  return std::make_unique<Trainer>(machine_, source_.config, identity_, source_.types,
                                   ops_shape(config_, source_.config, identity_), workload(), plan, threads());
}

Trainer& Session::trainer() {
  if (!trainer_) trainer_ = make_trainer(plan());
  return *trainer_;
}

TensorTypes Session::fill_weights(bool restored) {
  std::vector<LayerRecord>& records = trainer().records();
  TensorTypes types = fill_base(records);
  if (!has_adapters(records)) return types;
  const std::string& adapter = config_.model.adapter;
  if (restored) {
    // nothing to fill
  } else if (!adapter.empty()) {
    load_adapter(adapter, identity_.trained.adapter, records, threads());
  } else if (!source_.directory.empty()) {
    init_adapters(source_.config, config_.seed, records, threads());
  }
  types.clear();  // an export has only what is trained, in fp32: it is small, and so is its master
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (tensor.trainable) types[tensor.name] = DType::f32;
    }
  }
  return types;
}

TensorTypes Session::fill_base(std::vector<LayerRecord>& records) {
  if (!source_.directory.empty()) {
    log_info(fmt::format("loading the weights from {}", source_.directory));
    LoadReport report = load_weights(source_.directory, records, threads());
    if (!report.unused.empty())
      log_info(fmt::format("tensors in {} that this model does not use: {}", source_.directory,
                           fmt::join(report.unused, ", ")));
    return std::move(report.types);
  }
  init_weights(source_.config, config_.seed, records, threads());
  TensorTypes types;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors)
      types[tensor.name] = source_.config.dtype.value_or(identity_.dtype);
  }
  return types;
}

// What a PEFT directory says of the base: the name in the Hugging Face cache, or the absolute path.
std::string Session::base_name() const {
  if (source_.directory.empty()) return "";
  std::error_code none;
  const bool is_path = std::filesystem::exists(config_.model.path, none);
  return is_path ? std::filesystem::absolute(source_.directory, none).lexically_normal().string() : config_.model.path;
}

StateHash Session::export_model(const std::string& directory, const TensorTypes& types, const std::string& companions,
                                const ExportReady& ready) {
  const std::string source = companions.empty() ? companion_directory(config_, source_.directory) : companions;
  const std::vector<LayerRecord>& records = trainer().records();
  if (has_adapters(records)) {
    std::vector<const LayerLayout*> layouts;
    for (const LayerRecord& record : records) layouts.push_back(&record.layout());
    return export_adapter(directory, {.source_directory = source, .config_json = {}, .ready = ready},
                          adapter_config(identity_.trained.adapter, base_name(), layouts, module_names(model())),
                          records, module_names(model()), threads());
  }
  const KeptTensors kept(source, source_.config);
  return megatrain::export_model(directory,
                                 {.source_directory = source,
                                  .config_json = exported_config(source_, identity_.dtype),
                                  .ready = ready,
                                  .kept = &kept},
                                 types, records, threads());
}

}  // namespace megatrain
