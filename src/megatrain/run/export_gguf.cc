#include "megatrain/run/export_gguf.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/base/log.h"
#include "megatrain/config/adapter_file.h"
#include "megatrain/gguf/write_gguf_adapter.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/new_output.h"
#include "megatrain/model/model.h"
#include "megatrain/run/export_source.h"
#include "megatrain/run/run_files.h"
#include "megatrain/train/adapter_files.h"
#include "megatrain/train/setup.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

// general.name, the name people know the source by: RUN for RUN/model, RUN/best and RUN/checkpoints/step-N.
std::string name_of(const std::string& path) {
  std::error_code error;
  fs::path full = fs::weakly_canonical(fs::absolute(path), error);
  if (full.filename() == "model" || !run_of_model(path).empty()) full = full.parent_path();
  if (full.parent_path().filename() == "checkpoints") full = full.parent_path().parent_path();
  return full.filename().string();
}

// config.json of the model that the adapters belong to.
ModelConfig base_config(const std::string& directory, const AdapterFile& file) {
  const std::string named = fmt::format("{}/{}", directory, kAdapterFile);
  if (file.base.empty())
    fail_input(fmt::format("{} names no base model; write its directory as base_model_name_or_path there", named));
  const std::string path = find_model(file.base, ModelParts::config) + "/config.json";
  std::error_code none;
  if (!fs::exists(path, none))
    fail_input(
        fmt::format("{} names the base model {}, which is not there; bring it back, or write where it is now as "
                    "base_model_name_or_path",
                    named, file.base));
  return parse_model_config(read_json_file(path), path);
}

ExportedGguf export_adapter(const std::string& directory, const std::string& out, GgufType type) {
  verify_model_of_run(directory);
  const AdapterFile file = read_adapter_file(directory);
  if (!file.settings.also_train.empty())
    fail_input(
        fmt::format("{}/{} has modules_to_save, which a GGUF adapter cannot hold; merge it with its base ('megatrain "
                    "merge') and export that",
                    directory, kAdapterFile));
  if (file.settings.dora)
    fail_input(
        fmt::format("{}/{} has use_dora, which llama.cpp's adapters do not have; merge it with its base ('megatrain "
                    "merge') and export that",
                    directory, kAdapterFile));
  if (file.settings.bias != "none")
    fail_input(
        fmt::format("{}/{} has bias: {}, and a GGUF adapter cannot hold biases; merge it with its base ('megatrain "
                    "merge') and export that",
                    directory, kAdapterFile, file.settings.bias));
  if (!file.settings.trainable_token_indices.empty())
    fail_input(
        fmt::format("{}/{} has trainable_token_indices, and a GGUF adapter has no rows of single tokens; merge it with "
                    "its base ('megatrain merge') and export that",
                    directory, kAdapterFile));
  const ModelConfig model = base_config(directory, file);
  const AdapterRules rules = adapter_rules(file.settings, true);
  const std::vector<LayerLayout> layouts = model_layouts(model, DType::f32, {.adapter = rules});
  GgufAdapterRequest request{
      .path = out, .type = type, .name = name_of(directory), .model = model, .alpha = rules.alpha, .halves = {}};
  for (const LayerLayout& layout : layouts) {
    if (adapts_experts(layout))
      fail_input(fmt::format(
          "{}/{} has adapters of experts, which are not written as GGUF; merge it with its base ('megatrain "
          "merge') and export that",
          directory, kAdapterFile));
    for (const TensorSpec& tensor : layout.tensors) {
      if (tensor.is_half()) request.halves.push_back(&tensor);
    }
  }
  log_info(fmt::format("writing the adapter {} to {}", directory, out));
  return {directory, -1, write_gguf_adapter(request, read_adapter(directory, rules, layouts))};
}

}  // namespace

ExportedGguf export_gguf(const std::string& path, const std::string& out, GgufType type) {
  refuse_existing_output(out);
  const fs::path folder = fs::absolute(out).parent_path();
  if (!fs::is_directory(folder))
    fail_config(fmt::format("{} is not a folder; create it or choose another --out", folder.string()));
  if (is_adapter_directory(path)) return export_adapter(path, out, type);
  const ExportSource source(path, true);
  if (source.tokenizer_directory.empty())
    fail_input(
        fmt::format("{} has no tokenizer any more ({} is gone), and a GGUF file holds one; put it back to export", path,
                    source.missing_tokenizer.empty() ? "data.tokenizer" : source.missing_tokenizer));
  const ModelText text = ModelText::load(source.tokenizer_directory, source.chat_template);
  if (source.types.empty() && type == GgufType::f32 && source.step >= 0 && source.stored_narrow())
    log_warn(
        fmt::format("{} has no checkpoint of its last step: its exported weights are converted to fp32, which does not "
                    "restore the fp32 master weights",
                    path));
  log_info(source.step < 0 ? fmt::format("writing {} to {}", source.from, out)
                           : fmt::format("writing {} of step {} to {}", source.from, source.step, out));
  if (!source.model.part_of.empty())
    log_info(fmt::format("{} has the text part of the {} alone", out, source.model.part_of));
  const GgufReport report = write_gguf(
      {.path = out, .type = type, .name = name_of(source.from), .model = source.model, .tensors = source.tensors()},
      text, source.reader(type == GgufType::f32 ? DType::f32 : DType::bf16),
      [&](const TensorSpec& tensor) { source.release(tensor); });
  return {source.from, source.step, report};
}

}  // namespace megatrain
