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
json adapted_modules(const std::vector<const LayerLayout*>& layouts) {
  std::set<std::string> adapted, ends;
  for (const LayerLayout* layout : layouts) {
    for (const TensorSpec& tensor : layout->tensors) {
      if (tensor.role != TensorRole::adapter_in) continue;
      const std::string module = module_of(module_of(tensor.name));
      adapted.insert(module);
      ends.insert(module.substr(module.rfind('.') + 1));
    }
  }
  for (const LayerLayout* layout : layouts) {
    for (const TensorSpec& tensor : layout->tensors) {
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
std::vector<const TensorSpec*> adapter_file_tensors(const AdapterRules& rules,
                                                    const std::vector<const LayerLayout*>& layouts) {
  const TrainedWhole whole(rules);
  std::vector<const TensorSpec*> tensors;
  for (const LayerLayout* layout : layouts) {
    for (const TensorSpec& tensor : layout->tensors) {
      if (tensor.is_adapter() || whole.has(tensor)) tensors.push_back(&tensor);
    }
  }
  return tensors;
}

// Finds them in a file, and refuses others.
void check_adapter_file(const ModelFiles& files, const std::vector<const TensorSpec*>& tensors) {
  std::set<std::string> known;
  for (const TensorSpec* tensor : tensors) {
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
}

void read_finite(const ModelFiles& files, const TensorSpec& tensor, int64_t begin, int64_t count, float* out) {
  const std::string name = kPeftPrefix + tensor.name;
  read_as_f32(files.parameter(name, tensor_shape(tensor)), begin, count, out);
  const int64_t at = first_not_finite(out, count);
  if (at >= 0)
    fail_input(
        fmt::format("{}: element {} of tensor {} is {}; the file is damaged, or comes from a training that diverged",
                    files.path(), begin + at, name, number_text(out[at])));
}

std::string weights_file(const std::string& directory) { return directory + "/adapter_model.safetensors"; }

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
                           const std::vector<const LayerLayout*>& layouts) {
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
      {"target_modules", all ? adapted_modules(layouts) : modules_json(rules.targets)},
      {"task_type", "CAUSAL_LM"},
      {"use_dora", false},
      {"use_rslora", rules.rslora}};
  return json_text(config, 2) + "\n";
}

StateHash export_adapter(const std::string& directory, const ExportTexts& texts, const std::string& config,
                         const std::vector<LayerRecord>& records, int threads) {
  ExportRequest request{.directory = directory, .source_directory = texts.source_directory, .adapter_json = config};
  return export_tensors(
      std::move(request), trained_tensors(records), kPeftPrefix, [](const TensorSpec&) { return DType::f32; },
      texts.ready, records, threads);
}

AdapterValues read_adapter(const std::string& directory, const AdapterRules& rules,
                           const std::vector<LayerLayout>& layouts) {
  std::vector<const LayerLayout*> pointers;
  for (const LayerLayout& layout : layouts) pointers.push_back(&layout);
  const ModelFiles files(weights_file(directory));
  const std::vector<const TensorSpec*> tensors = adapter_file_tensors(rules, pointers);
  check_adapter_file(files, tensors);
  AdapterValues values;
  for (const TensorSpec* tensor : tensors) {
    std::vector<float>& into = values[tensor->name];
    into.resize(static_cast<size_t>(tensor->elements()));
    read_finite(files, *tensor, 0, tensor->elements(), into.data());
  }
  files.check_whole();
  return values;
}

void load_adapter(const std::string& directory, const AdapterRules& rules, std::vector<LayerRecord>& records,
                  int threads) {
  std::vector<const LayerLayout*> layouts;
  for (const LayerRecord& record : records) layouts.push_back(&record.layout());
  const ModelFiles files(weights_file(directory));
  const std::vector<const TensorSpec*> tensors = adapter_file_tensors(rules, layouts);
  check_adapter_file(files, tensors);
  const std::set<const TensorSpec*> wanted(tensors.begin(), tensors.end());
  for_pieces(records, threads, "loading the adapter", [&](const TensorPiece& piece, float* scratch) {
    if (!wanted.contains(piece.tensor)) return;
    read_finite(files, *piece.tensor, piece.begin, piece.count, scratch);
    piece.record->write_master(*piece.tensor, piece.begin, piece.count, scratch);
  });
  files.check_whole();
}

}  // namespace megatrain
