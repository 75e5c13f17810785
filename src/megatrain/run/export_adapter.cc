#include "megatrain/run/export_adapter.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/base/log.h"
#include "megatrain/chat/builtin_templates.h"
#include "megatrain/config/adapter_file.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/new_output.h"
#include "megatrain/model/model.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/run/best_model.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/train/adapter_files.h"
#include "megatrain/train/setup.h"

namespace megatrain {

namespace fs = std::filesystem;

namespace {

// Where the best or the newest adapters are.
struct Newest {
  std::string from, file;
  bool peft = false;  // the names in the file are those of PEFT
  int64_t step = 0;
};

Newest newest_adapters(const RunFiles& run, const std::string& path) {
  std::string checkpoint = is_checkpoint_directory(path) ? path : "";
  const auto of_directory = [](const std::string& directory, int64_t step) {
    verify_model_of_run(directory);
    return Newest{.from = directory, .file = directory, .peft = true, .step = step};
  };
  if (!run_of_model(path).empty()) return of_directory(path, step_of_model(run, path));
  if (checkpoint.empty()) {
    if (const auto best = best_model_to_export(run)) return of_directory(best->path, best->step);
    const auto checkpoints = list_checkpoints(run.path);
    if (run.hash && (checkpoints.empty() || checkpoints.back().first < run.hash->step))
      return of_directory(run.path + "/model", run.hash->step);
    if (checkpoints.empty())
      fail_input(
          fmt::format("{} has neither finished nor saved a checkpoint; there is nothing to export yet", run.path));
    checkpoint = checkpoints.back().second;
  }
  const Checkpoint read = read_checkpoint(checkpoint);
  verify_checkpoint(read);
  return {.from = checkpoint, .file = read.state_file(), .step = read.step};
}

// The folder that the run was started in, to which paths of its configuration are relative. Empty: unknown.
fs::path started_in(const RunFiles& run) {
  const fs::path given = fs::path(run.config.run_dir).lexically_normal();
  std::error_code none;
  fs::path folder = fs::weakly_canonical(run.path, none);
  if (given.is_absolute()) return {};
  for (fs::path rest = given; !rest.empty(); rest = rest.parent_path(), folder = folder.parent_path())
    if (rest.filename() != folder.filename()) return {};
  return folder;
}

// What a PEFT directory of the run says of its base: as the run's own models do, or by its absolute path.
std::string base_of(const RunFiles& run) {
  for (const char* name : {"/model", "/best"}) {
    if (!is_adapter_directory(run.path + name)) continue;
    if (const std::string base = read_adapter_file(run.path + name).base; !base.empty()) return base;
  }
  const fs::path base = run.config.model.path;
  if (base.empty() || base.is_absolute()) return base.string();
  std::error_code none;
  for (const fs::path& folder : {started_in(run), fs::current_path(none)})
    if (!folder.empty() && fs::exists(folder / base / "config.json", none))
      return (folder / base).lexically_normal().string();
  return base.string();
}

}  // namespace

std::optional<RunFiles> find_adapter_run(const std::string& given) {
  const std::string path = given.substr(0, given.find_last_not_of('/') + 1);
  const bool checkpoint = is_checkpoint_directory(path);
  const std::string of_model = run_of_model(path);
  if (!checkpoint && of_model.empty() && !is_run_directory(path)) return {};
  RunFiles run = read_run(checkpoint         ? fs::absolute(path).parent_path().parent_path().string()
                          : of_model.empty() ? path
                                             : of_model);
  if (run.config.adapter.rank == 0) return {};
  return run;
}

ExportedRun export_adapter_run(const RunFiles& run, const std::string& given, const std::string& out) {
  const std::string path = given.substr(0, given.find_last_not_of('/') + 1);
  refuse_existing_output(out);
  const AdapterRules rules = adapter_rules(run.config.adapter, true);
  const ModelConfig model = parse_model_config(
      parse_json(run.model_config, run.model_config_path, "put the model's config.json back"), run.model_config_path);
  const std::vector<LayerLayout> layouts = model_layouts(model, DType::f32, {.adapter = rules});
  const Newest newest = newest_adapters(run, path);
  const ModelFiles files(newest.file);

  std::vector<const LayerLayout*> pointers;
  std::vector<const TensorSpec*> trained;
  for (const LayerLayout& layout : layouts) {
    pointers.push_back(&layout);
    for (const TensorSpec& tensor : layout.tensors) {
      if (tensor.trainable) trained.push_back(&tensor);
    }
  }
  ExportRequest request{.directory = {},
                        .source_directory = run.tokenizer_directory,
                        .adapter_json = adapter_config(rules, base_of(run), pointers, module_names(model))};
  if (!run.chat_template.empty()) request.chat_template = read_template(run.chat_template);
  const PeftNames names(pointers, module_names(model));
  const std::vector<FileTensor> tensors = file_tensors(trained);
  for (const FileTensor& tensor : tensors) request.tensors.push_back({names(tensor.name), DType::f32, tensor.shape});
  const PartReader read = [&](const TensorSpec& part, int64_t begin, int64_t count, float* values) {
    if (!newest.peft) return read_as_f32(files.parameter(part.name, tensor_shape(part)), begin, count, values);
    const StoredTensor& stored = files.parameter(names(file_name(part)), file_shape(part));
    read_source({.values = &stored}, part, DType::f32, begin, count, values);
  };

  log_info(fmt::format("writing the adapters of {}, step {}, to {}", newest.from, newest.step, out));
  NewOutput output(out);
  request.directory = output.path();
  ModelExport exported(std::move(request));
  for (const FileTensor& tensor : tensors) {
    for (const FilePiece& piece : cut_file_tensor(tensor)) {
      const std::vector<std::byte> bytes = piece_bytes(piece, DType::f32, read);
      exported.write(names(tensor.name), piece.begin * dtype_bytes(DType::f32), bytes.data(), std::ssize(bytes));
    }
  }
  files.check_whole();
  ExportReport report = exported.finish();
  output.put_in_place();
  return {.from = newest.from, .step = newest.step, .files = std::move(report)};
}

}  // namespace megatrain
