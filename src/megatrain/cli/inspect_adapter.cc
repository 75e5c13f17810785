// Shows what a PEFT directory holds: the settings of its adapters, and their tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/escape.h"
#include "megatrain/base/table.h"
#include "megatrain/base/units.h"
#include "megatrain/cli/inspect.h"
#include "megatrain/config/adapter_file.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"

namespace megatrain {

namespace {

using nlohmann::ordered_json;

ordered_json describe_settings(const TrainConfig::Adapter& a) {
  const auto numbers = [](const std::vector<std::pair<std::string, double>>& patterns) {
    ordered_json object = ordered_json::object();
    for (const auto& [pattern, number] : patterns) object[pattern] = number;
    return object;
  };
  ordered_json tokens = ordered_json::object();
  for (const auto& [module, ids] : a.trainable_token_indices) tokens[module] = ids;
  return {{"rank", a.rank},
          {"alpha", a.alpha},
          {"dropout", a.dropout},
          {"targets", a.targets},
          {"exclude", a.exclude},
          {"rslora", a.rslora},
          {"dora", a.dora},
          {"bias", a.bias},
          {"rank_pattern", numbers(a.rank_pattern)},
          {"alpha_pattern", numbers(a.alpha_pattern)},
          {"also_train", a.also_train},
          {"trainable_token_indices", std::move(tokens)}};
}

ordered_json describe_adapter(const std::string& directory, const AdapterFile& file, const ModelFiles& files) {
  int64_t parameters = 0, bytes = 0;
  ordered_json list = ordered_json::array();
  for (const StoredTensor* tensor : files.tensors()) {
    parameters += tensor->elements();
    bytes += tensor->bytes;
    list.push_back({{"name", tensor->name}, {"type", stored_type_name(tensor->dtype)}, {"shape", tensor->shape}});
  }
  return {{"path", directory},
          {"base", file.base.empty() ? ordered_json() : ordered_json(file.base)},
          {"adapter", describe_settings(file.settings)},
          {"parameters", {{"total", parameters}}},
          {"weights", {{"bytes", bytes}, {"tensors", list.size()}, {"list", std::move(list)}}}};
}

void print_adapter(const AdapterFile& file, const ordered_json& json, bool with_tensors) {
  const auto row = [](const char* name, const std::string& value) {
    fmt::print("{:<14}{}\n", name, escape_line(value));
  };
  const TrainConfig::Adapter& a = file.settings;
  const ordered_json& weights = json.at("weights");
  const int64_t parameters = json.at("parameters").at("total").get<int64_t>();
  row("adapter", fmt::format("{}, {} of rank {}, alpha {:g}{}", json.at("path").get<std::string>(),
                             a.dora ? "DoRA" : "LoRA", a.rank, a.alpha, a.rslora ? ", rsLoRA" : ""));
  row("base", file.base.empty() ? "not named" : file.base);
  row("targets", fmt::format("{}", fmt::join(a.targets, ", ")));
  if (!a.exclude.empty()) row("excluded", fmt::format("{}", fmt::join(a.exclude, ", ")));
  if (!a.also_train.empty()) row("trained whole", fmt::format("{}", fmt::join(a.also_train, ", ")));
  if (a.bias != "none") row("biases", a.bias == "all" ? "all are trained" : "those of adapted modules are trained");
  for (const auto& [module, ids] : a.trainable_token_indices)
    row("token rows", fmt::format("{} of {}", fmt::join(ids, ", "), module));
  row("parameters", fmt::format("{} ({})", parameters, format_count(parameters)));
  row("weights", fmt::format("{} in {} tensors", format_bytes(weights.at("bytes").get<int64_t>()),
                             weights.at("tensors").get<int64_t>()));
  if (!with_tensors) return;
  Table table({"tensor", "type", "shape"});
  for (const ordered_json& tensor : weights.at("list"))
    table.row({tensor.at("name").get<std::string>(), tensor.at("type").get<std::string>(),
               format_shape(tensor.at("shape").get<std::vector<int64_t>>())});
  fmt::print("\n{}", table.text());
}

}  // namespace

int inspect_adapter(const std::string& directory, const InspectOptions& options) {
  const AdapterFile file = read_adapter_file(directory);
  const ModelFiles files(directory);
  ordered_json json = describe_adapter(directory, file, files);
  if (!options.json) {
    print_adapter(file, json, options.tensors);
    return 0;
  }
  if (!options.tensors) json.at("weights").erase("list");
  fmt::print("{}\n", json_text(json, 1));
  return 0;
}

}  // namespace megatrain
