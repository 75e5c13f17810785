#include "megatrain/train/adapter_files.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/finite.h"
#include "megatrain/base/log.h"
#include "megatrain/base/number_text.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/model/token_rows.h"
#include "megatrain/model/trained/adapter_targets.h"
#include "megatrain/model/trained/module_pattern.h"
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
json linear_modules(const std::vector<const LayerLayout*>& layouts) {
  const std::set<std::string> adapted = adapted_modules(layouts);
  std::set<std::string> ends;
  for (const std::string& module : adapted) ends.insert(module.substr(module.rfind('.') + 1));
  for (const LayerLayout* layout : layouts) {
    for (const TensorSpec& tensor : layout->tensors) {
      const std::string module = module_of(tensor.name);
      if (!tensor.is_adapter() && !adapted.contains(module) && ends.contains(module.substr(module.rfind('.') + 1)))
        return adapted;
    }
  }
  return ends;
}

// Those modules of the text part of a multimodal model, in full.
json modules_in_whole(const std::set<std::string>& modules, const TextNames& names) {
  std::set<std::string> all;
  for (const std::string& module : modules) all.insert(module_of(names.in_files(module + ".weight")));
  return all;
}

// A regular expression for the ends of modules' names in the text part alone. Some modules lie directly in it.
std::string modules_pattern(const json& ends) {
  std::vector<std::string> texts;
  for (const json& end : ends) texts.push_back(end);
  return fmt::format("model\\.language_model\\.(.*\\.)?({})", fmt::join(texts, "|"));
}

json targets_json(const AdapterRules& rules, const std::vector<const LayerLayout*>& layouts, const TextNames& names) {
  if (rules.targets.empty()) return nullptr;
  const bool whole = names == kModuleNames;
  if (rules.targets != std::vector<std::string>{AdapterRules::kAllLinear})
    return whole ? modules_in_whole(adapted_modules(layouts), names) : modules_json(rules.targets);
  const json modules = linear_modules(layouts);
  if (!whole) return modules;
  const bool ends = modules.front().get<std::string>().find('.') == std::string::npos;
  return ends ? json(modules_pattern(modules)) : modules_in_whole(adapted_modules(layouts), names);
}

json saved_modules_json(const AdapterRules& rules, const std::vector<const LayerLayout*>& layouts,
                        const TextNames& names) {
  if (rules.also_train.empty()) return nullptr;
  if (names != kModuleNames) return rules.also_train;
  const TrainedWhole whole(rules);
  std::set<std::string> modules;
  for (const LayerLayout* layout : layouts) {
    for (const TensorSpec& tensor : layout->tensors) {
      if (!tensor.is_adapter() && whole.has(tensor)) modules.insert(module_of(tensor.name));
    }
  }
  return modules_in_whole(modules, names);
}

json number_json(double value) { return value == std::floor(value) ? json(static_cast<int64_t>(value)) : json(value); }

// A pattern for the end of a name. One that names layers from the model on does so in the multimodal model, too.
std::string pattern_in_whole(std::string pattern, const TextNames& names) {
  if (names != kModuleNames || pattern.find("language_model") != std::string::npos) return pattern;
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"model.layers", "model.language_model.layers"},
                                 {"model\\.layers", "model\\.language_model\\.layers"}}) {
    if (const size_t at = pattern.find(from); at != std::string::npos) pattern.replace(at, from.size(), to);
  }
  return pattern;
}

ordered_json numbers_json(const std::vector<std::pair<std::string, double>>& numbers, const TextNames& names) {
  ordered_json object = ordered_json::object();
  for (const auto& [module, number] : numbers) object[pattern_in_whole(module, names)] = number_json(number);
  return object;
}

// PEFT takes a list for those of the input embedding.
ordered_json token_indices_json(const AdapterRules& rules) {
  if (rules.token_indices.empty()) return nullptr;
  if (rules.token_indices.size() == 1 && is_end_of(rules.token_indices.front().first, kEmbeddingModule))
    return rules.token_indices.front().second;
  ordered_json object = ordered_json::object();
  for (const auto& [module, ids] : rules.token_indices) object[module] = ids;
  return object;
}

// The tensors that a PEFT directory of these adapters holds.
std::vector<const TensorSpec*> adapter_file_tensors(const AdapterRules& rules,
                                                    const std::vector<const LayerLayout*>& layouts) {
  const TrainedBeside beside(rules, layouts);
  std::vector<const TensorSpec*> tensors;
  for (const LayerLayout* layout : layouts) {
    for (const TensorSpec& tensor : layout->tensors) {
      if (tensor.is_adapter() || beside.has(tensor)) tensors.push_back(&tensor);
    }
  }
  return tensors;
}

// The larger tensor of experts' halves with the roles of the two exchanged: the first half is for the outputs, the
// second for the inputs. See Stored for the layout.
std::string other_file_name(const TensorSpec& tensor) {
  const std::string& name = file_name(tensor);
  const bool first = tensor.role == TensorRole::adapter_in;
  const std::string_view half = first ? "lora_A.weight" : "lora_B.weight";
  return name.substr(0, name.size() - half.size()) + (first ? "lora_B.weight" : "lora_A.weight");
}

std::vector<int64_t> exchanged_shape(const TensorSpec& tensor) {
  const Stored& s = tensor.stored;
  return tensor.role == TensorRole::adapter_in ? std::vector<int64_t>{tensor.cols, s.slices * s.rows}
                                               : std::vector<int64_t>{s.slices * tensor.cols, tensor.rows};
}

// How a PEFT directory's file names the modules of a text model.
TextNames names_in(const ModelFiles& files) {
  std::vector<std::string> names;
  for (const StoredTensor* tensor : files.tensors()) {
    if (tensor->name.starts_with(kPeftPrefix)) names.push_back(tensor->name.substr(std::string(kPeftPrefix).size()));
  }
  return find_text_names(names);
}

// A PEFT directory's file with the tensors that it must hold, and no others.
//
// PEFT has changed what the halves of experts' adapters are. Up to 0.18 the first half is for a parameter's second axis
// and the second half for its third. In 0.19.0 it is the other way round if the parameter is transposed. From 0.19.1 on
// the first half is always for the inputs, as in a module's adapter.
class AdapterWeights {
 public:
  AdapterWeights(const std::string& directory, const std::vector<const TensorSpec*>& tensors,
                 const std::vector<const LayerLayout*>& layouts)
      : files_(adapter_weights_file(directory)),
        names_(layouts, names_in(files_)),
        exchanged_(has_exchanged(directory, tensors)) {
    std::set<std::string> known;
    for (const TensorSpec* tensor : tensors)
      known.insert(stored(*tensor).name);  // throws if it is missing or different
    for (const StoredTensor* stored : files_.tensors()) {
      if (known.contains(stored->name)) continue;
      if (stored->name.ends_with(".token_adapter.base_layer.weight"))
        fail_input(
            fmt::format("{}: {} is a whole table, which PEFT saves if the vocabulary was resized; save the resized "
                        "model as the base, and the adapter with save_embedding_layers=False",
                        files_.path(), printable(stored->name)));
      fail_input(fmt::format(
          "{}: tensor {} belongs to no module that has an adapter here. Either the adapter was made for "
          "another model, or it adapts a router, the embedding, the output matrix or another part of a multimodal "
          "model, which is not supported",
          files_.path(), printable(stored->name)));
    }
  }

  void read(const TensorSpec& tensor, int64_t begin, int64_t count, float* out) const {
    const StoredTensor& from = stored(tensor);
    if (is_exchanged(tensor)) {
      for (int64_t i = 0; i < count; ++i) read_as_f32(from, exchanged_place(tensor, begin + i), 1, out + i);
    } else {
      read_source({.values = &from}, tensor, DType::f32, begin, count, out);
    }
    const int64_t at = first_not_finite(out, count);
    if (at >= 0)
      fail_input(
          fmt::format("{}: element {} of tensor {} is {}; the file is damaged, or comes from a training that diverged",
                      files_.path(), begin + at, from.name, number_text(out[at])));
  }

  void check_whole() const { files_.check_whole(); }

 private:
  bool is_exchanged(const TensorSpec& tensor) const {
    return exchanged_ && tensor.is_half() && !tensor.stored.name.empty();
  }

  const StoredTensor& stored(const TensorSpec& tensor) const {
    return is_exchanged(tensor) ? files_.parameter(kPeftPrefix + other_file_name(tensor), exchanged_shape(tensor))
                                : files_.parameter(names_(file_name(tensor)), file_shape(tensor));
  }

  static int64_t exchanged_place(const TensorSpec& tensor, int64_t element) {
    const Stored& s = tensor.stored;
    const int64_t row = element / tensor.cols, col = element % tensor.cols;
    if (tensor.role == TensorRole::adapter_in) return (col * s.rows + row) * s.slices + s.index;
    const int64_t output = row * s.row_step % s.rows + row * s.row_step / s.rows;
    return (s.index * tensor.cols + col) * s.rows + output;
  }

  // By the shapes, and if these fit both ways by PEFT's version.
  bool has_exchanged(const std::string& directory, const std::vector<const TensorSpec*>& tensors) const {
    const TensorSpec* either = nullptr;
    for (const TensorSpec* tensor : tensors) {
      if (tensor->role != TensorRole::adapter_in || tensor->stored.name.empty()) continue;
      const StoredTensor* there = files_.find(kPeftPrefix + file_name(*tensor));
      if (!there || there->shape.size() != 2) continue;
      const bool usual = there->shape == file_shape(*tensor);
      const bool other = there->shape[1] * tensor->stored.slices * tensor->rows == there->elements() &&
                         files_.find(kPeftPrefix + other_file_name(*tensor)) != nullptr &&
                         files_.find(kPeftPrefix + other_file_name(*tensor))->shape == exchanged_shape(*tensor);
      if (usual != other) return other;
      if (usual) either = tensor;
    }
    if (!either) return false;
    const std::string config = directory + "/adapter_config.json";
    const json fields = read_json_file(config);
    const json version = fields.value("peft_version", json());
    if (version.is_string()) {
      const std::string text = version;
      if (text.starts_with("0.17.") || text.starts_with("0.18.")) return !either->stored.transposed;
      if (text == "0.19.0" || text.starts_with("0.19.0.")) return true;
      if (!text.empty() && text.front() >= '0' && text.front() <= '9') return false;
    }
    log_warn(fmt::format(
        "{}: {} fits in two ways: its first half is for the inputs, or for the outputs as PEFT had it up to "
        "0.19.0. The first is taken; \"peft_version\": \"0.18.0\" in {} says otherwise",
        files_.path(), file_name(*either), config));
    return false;
  }

  ModelFiles files_;
  PeftNames names_;
  bool exchanged_;
};

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

std::string PeftNames::operator()(const std::string& name) const {
  constexpr std::string_view kBias = ".bias";
  const bool wrapped = name.ends_with(kBias) && adapted_.contains(module_of(name));
  return kPeftPrefix + names_.in_files(wrapped ? module_of(name) + ".base_layer.bias" : name);
}

TextNames module_names(const ModelConfig& model) { return model.part_of.empty() ? TextNames() : kModuleNames; }

std::string adapter_config(const AdapterRules& rules, const std::string& base,
                           const std::vector<const LayerLayout*>& layouts, const TextNames& names) {
  const ordered_json config = {
      {"alpha_pattern", numbers_json(rules.alpha_pattern, names)},
      {"base_model_name_or_path", base.empty() ? json() : json(base)},
      {"bias", rules.bias == AdapterBias::all          ? "all"
               : rules.bias == AdapterBias::of_adapted ? "lora_only"
                                                       : "none"},
      {"exclude_modules", names == kModuleNames ? json() : modules_json(rules.exclude)},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", rules.init == AdapterInit::gaussian ? json("gaussian") : json(true)},
      {"lora_alpha", number_json(rules.alpha)},
      {"lora_dropout", rules.dropout},
      {"modules_to_save", saved_modules_json(rules, layouts, names)},
      {"peft_type", "LORA"},
      {"r", rules.rank},
      {"rank_pattern", numbers_json(rules.rank_pattern, names)},
      {"target_modules", targets_json(rules, layouts, names)},
      {"target_parameters", rules.target_parameters.empty() ? json() : json(rules.target_parameters)},
      {"task_type", "CAUSAL_LM"},
      {"trainable_token_indices", token_indices_json(rules)},
      {"use_dora", rules.dora},
      {"use_rslora", rules.rslora}};
  return json_text(config, 2) + "\n";
}

StateHash export_adapter(const std::string& directory, const ExportTexts& texts, const std::string& config,
                         const std::vector<LayerRecord>& records, const TextNames& names, int threads) {
  ExportRequest request{.directory = directory, .source_directory = texts.source_directory, .adapter_json = config};
  std::vector<const LayerLayout*> layouts;
  for (const LayerRecord& record : records) layouts.push_back(&record.layout());
  return export_tensors(
      std::move(request), trained_tensors(records), PeftNames(layouts, names),
      [](const TensorSpec&) { return DType::f32; }, texts.ready, records, threads);
}

void check_adapter(const std::string& directory, const AdapterRules& rules, const std::vector<LayerLayout>& layouts) {
  std::vector<const LayerLayout*> pointers;
  for (const LayerLayout& layout : layouts) pointers.push_back(&layout);
  const AdapterWeights files(directory, adapter_file_tensors(rules, pointers), pointers);
}

AdapterValues read_adapter(const std::string& directory, const AdapterRules& rules,
                           const std::vector<LayerLayout>& layouts) {
  std::vector<const LayerLayout*> pointers;
  for (const LayerLayout& layout : layouts) pointers.push_back(&layout);
  const std::vector<const TensorSpec*> tensors = adapter_file_tensors(rules, pointers);
  const AdapterWeights files(directory, tensors, pointers);
  AdapterValues values;
  for (const TensorSpec* tensor : tensors) {
    std::vector<float>& into = values[tensor->name];
    into.resize(static_cast<size_t>(tensor->elements()));
    files.read(*tensor, 0, tensor->elements(), into.data());
  }
  files.check_whole();
  return values;
}

void load_adapter(const std::string& directory, const AdapterRules& rules, std::vector<LayerRecord>& records,
                  int threads) {
  std::vector<const LayerLayout*> layouts;
  for (const LayerRecord& record : records) layouts.push_back(&record.layout());
  const std::vector<const TensorSpec*> tensors = adapter_file_tensors(rules, layouts);
  const AdapterWeights files(directory, tensors, layouts);
  const std::set<const TensorSpec*> wanted(tensors.begin(), tensors.end());
  for_pieces(records, threads, "loading the adapter", [&](const TensorPiece& piece, float* scratch) {
    if (!wanted.contains(piece.tensor)) return;
    files.read(*piece.tensor, piece.begin, piece.count, scratch);
    piece.record->write_master(*piece.tensor, piece.begin, piece.count, scratch);
  });
  files.check_whole();
}

}  // namespace megatrain
