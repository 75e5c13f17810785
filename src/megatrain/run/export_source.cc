#include "megatrain/run/export_source.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/hub/other_formats.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/files/unused_tensors.h"
#include "megatrain/model/known_fields.h"
#include "megatrain/model/model.h"
#include "megatrain/model/multimodal.h"
#include "megatrain/run/best_model.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

namespace fs = std::filesystem;

namespace {

// config.json names the dtype of the weights under `torch_dtype`, `dtype` or both, depending on the transformers
// version.
std::string config_of_type(const std::string& text, const std::string& where, DType type, bool given) {
  nlohmann::json object = parse_json(text, where, "expected a Hugging Face config.json");
  const char* name = type == DType::f32 ? "float32" : type == DType::f16 ? "float16" : "bfloat16";
  const bool has = object.contains("torch_dtype"), has_new = object.contains("dtype");
  if (!given && (has || has_new)) return text;
  if (has || !has_new) object["torch_dtype"] = name;
  if (has_new) object["dtype"] = name;
  return json_text(object, 2) + "\n";
}

}  // namespace

// Verifies the checkpoint and returns the path for ModelFiles.
std::string ExportSource::of_checkpoint(const std::string& path) {
  const Checkpoint checkpoint = read_checkpoint(path);
  log_info(fmt::format("checking {}", path));
  verify_checkpoint(checkpoint);
  from = path;
  step = checkpoint.step;
  types = checkpoint.types;
  return checkpoint.state_file();
}

// RUN/model or RUN/best.
std::string ExportSource::of_model_directory(const std::string& path, int64_t its_step) {
  log_info(fmt::format("checking {}", path));
  verify_model_of_run(path);
  from = path;
  step = its_step;
  return path;
}

std::string ExportSource::of_run(const std::string& path) {
  const bool checkpoint = is_checkpoint_directory(path);
  const std::string of_model = run_of_model(path);
  // The run of RUN/checkpoints/step-N is two folders up.
  const RunFiles run = read_run(checkpoint         ? fs::absolute(path).parent_path().parent_path().string()
                                : of_model.empty() ? path
                                                   : of_model);
  if (run.config.adapter.rank > 0)
    fail_input(
        fmt::format("{0} trains adapters: 'megatrain export {0} --out ADAPTER' writes them as a PEFT directory, and "
                    "'megatrain export ADAPTER --gguf …' that as a GGUF adapter. For a whole model, first 'megatrain "
                    "merge BASE ADAPTER --out MODEL'",
                    run.path));
  if (run.model_config_path.empty()) {
    fail_input(fmt::format("{} does not hold its model's config.json and {} is gone; put that back to export", run.path,
                           run.config.model.path.empty() ? run.config.model.config : run.config.model.path));
  }
  parse_json(run.model_config, run.model_config_path, model_config_advice(run));
  config_text = run.model_config;
  config_path = run.model_config_path;
  tokenizer_directory = run.tokenizer_directory;
  missing_tokenizer = run.missing_tokenizer;
  chat_template = run.chat_template;
  check_companions(run);
  if (checkpoint) return of_checkpoint(path);
  if (!of_model.empty()) return of_model_directory(path, step_of_model(run, path));
  if (const auto best = best_model_to_export(run)) return of_model_directory(best->path, best->step);

  const auto checkpoints = list_checkpoints(run.path);
  if (run.hash && (checkpoints.empty() || checkpoints.back().first < run.hash->step)) {
    return of_model_directory(run.path + "/model", run.hash->step);
  }
  const std::string lost = describe_lost_model(run);
  if (checkpoints.empty() && !lost.empty()) fail_input(lost);
  if (checkpoints.empty()) {
    fail_input(
        fmt::format("{} has neither finished nor saved a checkpoint; there is nothing to export yet (see "
                    "checkpoint.every, or stop it with SIGTERM, which saves one)",
                    run.path));
  }
  if (!lost.empty() && checkpoints.back().first < *run.complete_step) log_warn(lost);
  return of_checkpoint(checkpoints.back().second);
}

std::string ExportSource::of_directory(const std::string& path) {
  std::error_code none;
  if (fs::exists(path + "/adapter_config.json", none)) refuse_other_formats(path);
  constexpr int64_t kMaxConfigBytes = 16 * kMiB;
  verify_model_of_run(path);
  from = path;
  config_path = path + "/config.json";
  config_text = read_text_file(config_path, kMaxConfigBytes);
  tokenizer_directory = path;
  return path;
}

std::string ExportSource::config_for(DType stored, std::optional<DType> type) const {
  return unquantised_config(config_of_type(config_text, config_path, stored, type.has_value()),
                            type.value_or(DType::bf16));
}

ExportSource::ExportSource(const std::string& given, bool directories) {
  const std::string path = given.substr(0, given.find_last_not_of('/') + 1);
  const bool directory = directories && !is_checkpoint_directory(path) && !is_run_directory(path);
  const std::string opened = directory ? of_directory(path) : of_run(path);
  const nlohmann::json config = parse_json(config_text, config_path, "expected a Hugging Face config.json");
  model = parse_model_config(config, config_path);
  if (directory) {
    for (const std::string& note : passed_over_fields(config, config_path)) log_warn(note);
  }
  // A checkpoint has the text model alone, under its own names.
  files_ = std::make_unique<const ModelFiles>(types.empty() ? open_model_files(opened) : ModelFiles(opened));
  kept_directory_ = types.empty() ? opened : tokenizer_directory;
  layouts_ = held_ = model_layouts(model);
  for (LayerLayout& layout : held_) {
    for (TensorSpec& tensor : layout.tensors) {
      if (!types.empty()) tensor.stored = {};  // a checkpoint stores each tensor under its own name
    }
    for (const TensorSpec& tensor : layout.tensors) sources_[tensor.name] = {&tensor, find_source(*files_, tensor)};
  }
  if (types.empty()) check_directory();
  for (LayerLayout& layout : layouts_) {
    for (TensorSpec& tensor : layout.tensors) tensor = in_form_of(was_in_other_form(tensor.name), tensor);
  }
}

// Whether an export stores it as TensorSpec::or_stored says.
bool ExportSource::was_in_other_form(const std::string& tensor) const {
  if (types.empty()) return sources_.at(tensor).second.in_other_form;
  const auto found = types.find(tensor);
  return found != types.end() && found->second.in_other_form;
}

// The same checks as training from this directory makes.
void ExportSource::check_directory() const {
  std::vector<const LayerLayout*> layouts;
  for (const LayerLayout& layout : held_) layouts.push_back(&layout);
  const LoadReport report = match_weights(*files_, layouts);
  check_unused(*files_, report.unused, held_.front().tensors.front(), 0);
}

std::vector<const TensorSpec*> ExportSource::tensors() const {
  std::vector<const TensorSpec*> tensors;
  for (const LayerLayout& layout : layouts_) {
    for (const TensorSpec& tensor : layout.tensors) tensors.push_back(&tensor);
  }
  return tensors;
}

DType ExportSource::stored_type(const std::string& tensor) const { return sources_.at(tensor).second.type(); }

bool ExportSource::stored_narrow() const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [](const auto& source) { return source.second.second.type() != DType::f32; });
}

PartReader ExportSource::reader(DType as) const {
  return [this, as](const TensorSpec& part, int64_t begin, int64_t count, float* values) {
    const auto& [tensor, source] = sources_.at(part.name);
    read_source(source, *tensor, as, begin, count, values);
  };
}

void ExportSource::release(const TensorSpec& part) const {
  const auto& [tensor, source] = sources_.at(part.name);
  release_source(source, *tensor);
}

}  // namespace megatrain
