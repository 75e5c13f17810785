#include "megatrain/run/export_adapter.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/base/log.h"
#include "megatrain/chat/builtin_templates.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/new_output.h"
#include "megatrain/model/model.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/train/adapter_files.h"
#include "megatrain/train/setup.h"

namespace megatrain {

namespace fs = std::filesystem;

namespace {

// Where the newest adapters are.
struct Newest {
  std::string from, file;
  bool peft = false;  // the names in the file are those of PEFT
  int64_t step = 0;
};

Newest newest_adapters(const RunFiles& run, const std::string& path) {
  std::string checkpoint = is_checkpoint_directory(path) ? path : "";
  if (checkpoint.empty()) {
    const auto checkpoints = list_checkpoints(run.path);
    if (run.hash && (checkpoints.empty() || checkpoints.back().first < run.hash->step)) {
      verify_run_model(run.path, *run.hash);
      const std::string model = run.path + "/model";
      return {.from = model, .file = model, .peft = true, .step = run.hash->step};
    }
    if (checkpoints.empty())
      fail_input(
          fmt::format("{} has neither finished nor saved a checkpoint; there is nothing to export yet", run.path));
    checkpoint = checkpoints.back().second;
  }
  const Checkpoint read = read_checkpoint(checkpoint);
  verify_checkpoint(read);
  return {.from = checkpoint, .file = read.state_file(), .step = read.step};
}

}  // namespace

std::optional<RunFiles> find_adapter_run(const std::string& given) {
  const std::string path = given.substr(0, given.find_last_not_of('/') + 1);
  const bool checkpoint = is_checkpoint_directory(path);
  if (!checkpoint && !is_run_directory(path)) return {};
  RunFiles run = read_run(checkpoint ? fs::absolute(path).parent_path().parent_path().string() : path);
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
                        .adapter_json = adapter_config(rules, run.config.model.path, pointers, module_names(model))};
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
