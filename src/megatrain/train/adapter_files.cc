#include "megatrain/train/adapter_files.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/finite.h"
#include "megatrain/base/number_text.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/module_pattern.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/store/pieces.h"

namespace megatrain {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// PEFT writes a list for names and a text for a regular expression.
json modules_json(const std::vector<std::string>& modules) {
  if (modules.empty()) return nullptr;
  if (modules.size() == 1 && is_module_pattern(modules.front())) return modules.front();
  return modules;
}

// What all-linear stands for: the last parts of the modules' names, or whole names where those would name others too.
json adapted_modules(const std::vector<LayerRecord>& records) {
  std::set<std::string> adapted, ends;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (tensor.role != TensorRole::adapter_in) continue;
      const std::string module = module_of(module_of(tensor.name));
      adapted.insert(module);
      ends.insert(module.substr(module.rfind('.') + 1));
    }
  }
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      const std::string module = module_of(tensor.name);
      if (!tensor.is_adapter() && !adapted.contains(module) && ends.contains(module.substr(module.rfind('.') + 1)))
        return adapted;
    }
  }
  return ends;
}

json number_json(double value) { return value == std::floor(value) ? json(static_cast<int64_t>(value)) : json(value); }

ordered_json numbers_json(const std::vector<std::pair<std::string, double>>& numbers) {
  ordered_json object = ordered_json::object();
  for (const auto& [module, number] : numbers) object[module] = number_json(number);
  return object;
}

// The tensors that a PEFT directory of these adapters holds.
std::vector<const TensorSpec*> tensors_of(const AdapterRules& rules, const std::vector<LayerRecord>& records) {
  const TrainedWhole whole(rules);
  std::vector<const TensorSpec*> tensors;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (tensor.is_adapter() || whole.has(tensor)) tensors.push_back(&tensor);
    }
  }
  return tensors;
}

std::vector<const TensorSpec*> trained_tensors(const std::vector<LayerRecord>& records) {
  std::vector<const TensorSpec*> tensors;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (tensor.trainable) tensors.push_back(&tensor);
    }
  }
  return tensors;
}

}  // namespace

std::string adapter_config(const AdapterRules& rules, const std::string& base,
                           const std::vector<LayerRecord>& records) {
  const bool all = rules.targets == std::vector<std::string>{AdapterRules::kAllLinear};
  const ordered_json config = {
      {"alpha_pattern", numbers_json(rules.alpha_pattern)},
      {"base_model_name_or_path", base.empty() ? json() : json(base)},
      {"bias", "none"},
      {"exclude_modules", modules_json(rules.exclude)},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", rules.init == AdapterInit::gaussian ? json("gaussian") : json(true)},
      {"lora_alpha", number_json(rules.alpha)},
      {"lora_dropout", rules.dropout},
      {"modules_to_save", rules.also_train.empty() ? json() : json(rules.also_train)},
      {"peft_type", "LORA"},
      {"r", rules.rank},
      {"rank_pattern", numbers_json(rules.rank_pattern)},
      {"target_modules", all ? adapted_modules(records) : modules_json(rules.targets)},
      {"task_type", "CAUSAL_LM"},
      {"use_dora", false},
      {"use_rslora", rules.rslora}};
  return json_text(config, 2) + "\n";
}

StateHash export_adapter(const std::string& directory, const ExportTexts& texts, const std::string& config,
                         const std::vector<LayerRecord>& records, int threads) {
  ExportRequest request{.directory = directory,
                        .config_json = texts.config_json,
                        .source_directory = texts.source_directory,
                        .adapter_json = config};
  return export_tensors(
      std::move(request), trained_tensors(records), kPeftPrefix, [](const TensorSpec&) { return DType::f32; },
      texts.ready, records, threads);
}

void load_adapter(const std::string& directory, const AdapterRules& rules, std::vector<LayerRecord>& records,
                  int threads) {
  const ModelFiles files(directory + "/adapter_model.safetensors");
  std::set<std::string> known;
  std::set<const TensorSpec*> wanted;
  for (const TensorSpec* tensor : tensors_of(rules, records)) {
    wanted.insert(tensor);
    const std::string name = kPeftPrefix + tensor->name;
    files.parameter(name, tensor_shape(*tensor));  // throws if it is missing or different
    known.insert(name);
  }
  for (const StoredTensor* stored : files.tensors()) {
    if (!known.contains(stored->name))
      fail_input(
          fmt::format("{}: tensor {} belongs to no module with an adapter of this model; give the model that the "
                      "adapter was made for",
                      files.path(), printable(stored->name)));
  }
  for_pieces(records, threads, "loading the adapter", [&](const TensorPiece& piece, float* scratch) {
    if (!wanted.contains(piece.tensor)) return;
    const std::string name = kPeftPrefix + piece.tensor->name;
    read_as_f32(files.parameter(name, tensor_shape(*piece.tensor)), piece.begin, piece.count, scratch);
    const int64_t at = first_not_finite(scratch, piece.count);
    if (at >= 0)
      fail_input(
          fmt::format("{}: element {} of tensor {} is {}; the file is damaged, or comes from a training that "
                      "diverged",
                      files.path(), piece.begin + at, name, number_text(scratch[at])));
    piece.record->write_master(*piece.tensor, piece.begin, piece.count, scratch);
  });
  files.check_whole();
}

}  // namespace megatrain
