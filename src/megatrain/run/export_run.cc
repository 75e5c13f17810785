#include "megatrain/run/export_run.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/model.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/run/run_files.h"
#include "megatrain/text/chat_template.h"
#include "megatrain/train/state_files.h"

namespace megatrain {

namespace fs = std::filesystem;

namespace {

// Where the weights are, and in which type each was before.
struct Source {
  std::string from;   // for people
  std::string files;  // what ModelFiles opens
  int64_t step = 0;
  TensorTypes types;  // empty: as stored
};

Source of_checkpoint(const std::string& path) {
  const Checkpoint checkpoint = read_checkpoint(path);
  log_info(fmt::format("checking {}", path));
  verify_checkpoint(checkpoint);
  return {path, checkpoint.state_file(), checkpoint.step, checkpoint.types};
}

Source newest_of(const RunFiles& run) {
  const auto checkpoints = list_checkpoints(run.path);
  if (run.hash && (checkpoints.empty() || checkpoints.back().first < run.hash->step)) {
    log_info(fmt::format("checking {}/model", run.path));
    verify_run_model(run.path, *run.hash);
    return {run.path + "/model", run.path + "/model", run.hash->step, {}};
  }
  if (checkpoints.empty()) {
    fail_input(
        fmt::format("{} has neither finished nor saved a checkpoint; there is nothing to export yet (see "
                    "checkpoint.every, or stop it with SIGTERM, which saves one)",
                    run.path));
  }
  return of_checkpoint(checkpoints.back().second);
}

// config.json says in which type the weights are, under both names that transformers has had for it.
std::string config_of_type(const std::string& text, const std::string& where, DType type, bool given) {
  nlohmann::json object = parse_json(text, where, "expected a Hugging Face config.json");
  const char* name = type == DType::f32 ? "float32" : type == DType::f16 ? "float16" : "bfloat16";
  const bool has = object.contains("torch_dtype"), has_new = object.contains("dtype");
  if (!given && (has || has_new)) return text;
  if (has || !has_new) object["torch_dtype"] = name;
  if (has_new) object["dtype"] = name;
  return json_text(object, 2) + "\n";
}

// The model's tensors in the form that the source's files hold them in: a checkpoint has each by its own name.
std::vector<LayerLayout> layouts_of(const Source& source, const ModelConfig& model) {
  std::vector<LayerLayout> layouts = model_layouts(model);
  for (LayerLayout& layout : layouts) {
    for (TensorSpec& tensor : layout.tensors) {
      if (!source.types.empty()) tensor.stored = {};
    }
  }
  return layouts;
}

}  // namespace

ExportedRun export_run(const std::string& given, const std::string& out, std::optional<DType> type) {
  const std::string path = given.substr(0, given.find_last_not_of('/') + 1);
  if (fs::exists(out)) fail_config(fmt::format("{} is there already; give --out a new directory", out));
  const bool checkpoint = is_checkpoint_directory(path);
  // RUN/checkpoints/step-N
  const RunFiles run = read_run(checkpoint ? fs::absolute(path).parent_path().parent_path().string() : path);
  if (run.model_config.empty()) {
    fail_input(fmt::format("{} does not hold its model's config.json and {} is gone; put that back to export", run.path,
                           run.config.model.path.empty() ? run.config.model.config : run.config.model.path));
  }
  const ModelConfig model =
      parse_model_config(parse_json(run.model_config, run.model_config_path, "expected a Hugging Face config.json"),
                         run.model_config_path);
  const Source source = checkpoint ? of_checkpoint(path) : newest_of(run);
  const ModelFiles files(source.files);
  const bool widened = source.types.empty() && type == DType::f32;

  ExportRequest request{.directory = out, .source_directory = run.tokenizer_directory};
  const std::string& own_template = run.config.data.chat_template;
  if (!own_template.empty() && fs::exists(own_template))
    request.chat_template = read_text_file(own_template, kMaxTemplateBytes);
  const std::vector<LayerLayout> layouts = model_layouts(model), held = layouts_of(source, model);
  std::vector<const TensorSpec*> specs;
  std::map<std::string, std::pair<const TensorSpec*, TensorSource>> sources;  // by the model's names
  bool narrow = false;
  for (size_t i = 0; i < layouts.size(); ++i) {
    for (const TensorSpec& tensor : layouts[i].tensors) specs.push_back(&tensor);
    for (const TensorSpec& tensor : held[i].tensors) {
      const TensorSource from = find_source(files, tensor);
      narrow = narrow || from.type() != DType::f32;
      sources[tensor.name] = {&tensor, from};
    }
  }
  const std::vector<FileTensor> tensors = file_tensors(specs);
  const auto type_of = [&](const FileTensor& tensor) {
    const std::string& name = tensor.parts.front()->name;
    const auto found = source.types.find(name);
    return type.value_or(found == source.types.end() ? sources.at(name).second.type() : found->second);
  };
  for (const FileTensor& tensor : tensors) request.tensors.push_back({tensor.name, type_of(tensor), tensor.shape});
  if (widened && narrow)
    log_warn(
        fmt::format("{} has no checkpoint of its last step: its exported weights are widened, which does not bring "
                    "the fp32 master back",
                    run.path));
  if (!run.config.model.path.empty() && run.tokenizer_directory.empty())
    log_warn(fmt::format("{} is gone: the export has no tokenizer files", run.config.model.path));
  request.config_json = unquantised_config(
      config_of_type(run.model_config, run.model_config_path, type_of(tensors.front()), type.has_value()),
      type.value_or(DType::bf16));

  log_info(fmt::format("writing {} of step {} to {}", source.from, source.step, out));
  ModelExport model_export(std::move(request));
  const PartReader read = [&](const TensorSpec& part, int64_t begin, int64_t count, float* values) {
    const auto& [tensor, from] = sources.at(part.name);
    read_source(from, *tensor, begin, count, values);
  };
  for (const FileTensor& tensor : tensors) {
    const DType as = type_of(tensor);
    for (const FilePiece& piece : cut_file_tensor(tensor)) {
      const std::vector<std::byte> bytes = piece_bytes(piece, as, read);
      model_export.write(tensor.name, piece.begin * dtype_bytes(as), bytes.data(), std::ssize(bytes));
    }
    for (const TensorSpec* part : tensor.parts) {
      const auto& [held_as, from] = sources.at(part->name);
      release_source(from, *held_as);
    }
  }
  files.check_whole();
  return {source.from, source.step, model_export.finish()};
}

}  // namespace megatrain
