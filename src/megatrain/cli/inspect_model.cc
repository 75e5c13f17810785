// Shows what a Hugging Face directory holds and what training it would need.
#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/escape.h"
#include "megatrain/base/table.h"
#include "megatrain/base/units.h"
#include "megatrain/chat/chat_template.h"
#include "megatrain/cli/inspect.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/model.h"
#include "megatrain/model/multimodal.h"
#include "megatrain/tokenizer/config_tokens.h"
#include "megatrain/tokenizer/tokenizer.h"

namespace megatrain {

namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kKinds[] = {"embedding", "attention", "mlp", "router", "experts", "norms", "head", "other"};

const char* kind_of(const std::string& tensor) {
  const auto has = [&](const char* part) { return tensor.find(part) != std::string::npos; };
  if (has("embed_tokens")) return "embedding";
  if (has("lm_head")) return "head";
  if (has("norm")) return "norms";
  if (has("self_attn")) return "attention";
  if (has(".experts.")) return "experts";
  if (has("mlp.router.") || has("mlp.gate.") || has("block_sparse_moe.gate.")) return "router";
  if (has("mlp")) return "mlp";
  return "other";
}

// What could be read of the model. A part that cannot be read is replaced by a message.
struct Found {
  ordered_json config;  // config.json as it is
  std::optional<ModelConfig> model;
  std::optional<ModelFiles> weights;
  std::map<std::string, int64_t> parameters;  // by kind
  std::vector<std::string> problems;
};

template <class Read>
void attempt(Found& found, const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    found.problems.push_back(error.what());
  }
}

Found look(const std::string& directory) {
  Found found;
  const std::string path = directory + "/config.json";
  const nlohmann::json config = read_json_file(path);
  if (!config.is_object()) fail_input(fmt::format("{} is not a JSON object; download it again", path));
  found.config = config;
  attempt(found, [&] { found.model = parse_model_config(config, path); });
  attempt(found, [&] { found.weights.emplace(directory); });
  if (found.model) {
    const std::vector<LayerLayout> layouts = model_layouts(*found.model);
    std::vector<const LayerLayout*> pointers;
    for (const LayerLayout& layout : layouts) {
      pointers.push_back(&layout);
      for (const TensorSpec& tensor : layout.tensors) found.parameters[kind_of(tensor.name)] += tensor.elements();
    }
    if (found.weights) attempt(found, [&] { match_weights(open_model_files(directory), pointers); });
  } else if (found.weights) {
    for (const StoredTensor* tensor : found.weights->tensors())
      found.parameters[kind_of(tensor->name)] += tensor->elements();
  }
  return found;
}

int64_t total(const std::map<std::string, int64_t>& parameters) {
  int64_t sum = 0;
  for (const auto& [kind, count] : parameters) sum += count;
  return sum;
}

// "byte-level BPE", or the type that the file names.
std::string tokenizer_kind(const nlohmann::json& file) {
  const auto model = file.find("model");
  if (model == file.end() || !model->is_object()) return "unknown";
  if (model->contains("type") && model->at("type") != "BPE")
    return model->at("type").is_string() ? model->at("type").get<std::string>() : "unknown";
  if (model->contains("byte_fallback") && model->at("byte_fallback") == true) return "BPE with byte fallback";
  return file.dump().find("\"ByteLevel\"") != std::string::npos ? "byte-level BPE" : "BPE";
}

ordered_json describe_tokenizer(const std::string& directory, Found& found) {
  ordered_json json = {{"kind", nullptr}, {"vocab", nullptr}, {"chat_template", false}};
  const std::string path = directory + "/tokenizer.json";
  if (fs::exists(path)) {
    attempt(found, [&] {
      json["kind"] = tokenizer_kind(read_json_file(path));
      json["vocab"] = Tokenizer::from_file(path, config_tokens(TokenizerConfigFiles::read(directory))).vocab_size();
    });
  } else if (fs::exists(directory + "/tokenizer.model")) {
    json["kind"] = "SentencePiece (tokenizer.model only)";
    found.problems.push_back(
        fmt::format("{} has tokenizer.model but no tokenizer.json, which is what megatrain reads; save it with "
                    "transformers' AutoTokenizer to get one",
                    directory));
  }
  bool has = fs::exists(directory + "/chat_template.jinja");
  if (const std::string file = directory + "/tokenizer_config.json"; fs::exists(file)) {
    attempt(found, [&] {
      const nlohmann::json config = read_json_file(file);
      has = has || (config.is_object() && config.contains("chat_template") && !config.at("chat_template").is_null());
    });
  }
  if (has) {
    attempt(found, [&] {
      ChatTemplate::load(directory);
      json["chat_template"] = true;
    });
  }
  return json;
}

// From generation_config.json if it has them, otherwise from config.json: an id or a list of ids.
ordered_json special_ids(const std::string& directory, Found& found) {
  nlohmann::json generation = nlohmann::json::object();
  if (const std::string file = directory + "/generation_config.json"; fs::exists(file))
    attempt(found, [&] { generation = read_json_file(file); });
  ordered_json json;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const bool first = generation.is_object() && generation.contains(key) && !generation.at(key).is_null();
    json[key] = first ? ordered_json(generation.at(key)) : found.config.value(key, ordered_json());
  }
  return json;
}

ordered_json describe_weights(const ModelFiles& files, const InspectOptions& options) {
  std::map<std::string, int64_t> bytes;
  int64_t all = 0;
  for (const StoredTensor* tensor : files.tensors()) {
    bytes[stored_type_name(tensor->dtype)] += tensor->bytes;
    all += tensor->bytes;
  }
  ordered_json json = {{"bytes", all}, {"bytes_by_type", bytes}, {"tensors", files.tensors().size()}};
  json["shards"] = files.files().size();
  if (options.tensors) {
    for (const StoredTensor* tensor : files.tensors())
      json["list"].push_back(
          {{"name", tensor->name}, {"type", stored_type_name(tensor->dtype)}, {"shape", tensor->shape}});
  }
  return json;
}

ordered_json describe_training(int64_t parameters) {
  // bf16: weight, low half of its master, m and v, plus a waiting gradient. fp32: weight and gradient take twice the
  // bytes and there is no low half.
  return {{"bf16", {{"state_bytes", 12 * parameters}, {"with_gradients_bytes", 14 * parameters}}},
          {"fp32", {{"state_bytes", 12 * parameters}, {"with_gradients_bytes", 16 * parameters}}}};
}

ordered_json describe(const std::string& directory, Found& found, const InspectOptions& options) {
  ordered_json json = {{"path", directory}, {"architecture", nullptr}, {"supported", found.model.has_value()}};
  if (found.config.contains("architectures") && found.config.at("architectures").is_array() &&
      !found.config.at("architectures").empty())
    json["architecture"] = found.config.at("architectures").front();
  ordered_json by_kind = ordered_json::object();
  for (const char* kind : kKinds) {
    if (const auto at = found.parameters.find(kind); at != found.parameters.end()) by_kind[kind] = at->second;
  }
  json["parameters"] = {{"total", total(found.parameters)}, {"by_kind", by_kind}};
  json["active_parameters"] = nullptr;
  if (const auto& m = found.model) {
    json["active_parameters"] = total(found.parameters) - idle_parameters(*m);
    if (!m->part_of.empty()) json["text_part"] = m->architecture;
    json["layers"] = m->layers;
    json["hidden"] = m->hidden;
    json["ff"] = m->ff;
    json["heads"] = m->heads;
    json["kv_heads"] = m->kv_heads;
    json["head_dim"] = m->head_dim;
    json["vocab"] = m->vocab;
    json["context"] = m->max_position;
    json["tied"] = m->tied;
    if (const ExpertsConfig& e = m->experts; e.count > 0)
      json["experts"] = {{"count", e.count},
                         {"chosen", e.chosen},
                         {"ff", e.ff},
                         {"layers", std::count(e.layers.begin(), e.layers.end(), true)}};
  }
  json["weights"] = found.weights ? describe_weights(*found.weights, options) : ordered_json();
  json["tokenizer"] = describe_tokenizer(directory, found);
  json["ids"] = special_ids(directory, found);
  json["training"] = found.model ? describe_training(total(found.parameters)) : ordered_json();
  json["problems"] = found.problems;
  return json;
}

std::string text_of(const ordered_json& value) {
  return value.is_null() ? "none" : value.is_string() ? value.get<std::string>() : value.dump();
}

void row(const std::string& name, const std::string& value) { fmt::print("{:<14}{}\n", name, escape_line(value)); }

void print(const ordered_json& json, const InspectOptions& options) {
  const int64_t parameters = json.at("parameters").at("total");
  row("model", fmt::format("{}, {}", json.at("path").get<std::string>(), text_of(json.at("architecture"))));
  std::vector<std::string> kinds;
  for (const auto& [kind, count] : json.at("parameters").at("by_kind").items())
    kinds.push_back(fmt::format("{} {:.1f}%", kind,
                                100.0 * count.get<double>() / static_cast<double>(std::max<int64_t>(parameters, 1))));
  row("parameters", fmt::format("{} ({}): {}", parameters, format_count(parameters), fmt::join(kinds, ", ")));
  if (json.contains("text_part"))
    row("text part", fmt::format("{}: parameters and shape are its own", text_of(json.at("text_part"))));
  if (json.contains("layers")) {
    row("shape", fmt::format("{} layers, hidden {}, ff {}, {} heads of {} on {}", text_of(json.at("layers")),
                             text_of(json.at("hidden")), text_of(json.at("ff")), text_of(json.at("heads")),
                             text_of(json.at("head_dim")), text_of(json.at("kv_heads"))));
    if (json.contains("experts")) {
      const ordered_json& experts = json.at("experts");
      row("experts", fmt::format("{} of {} a token, ff {}, in {} layers: {} active parameters ({})",
                                 text_of(experts.at("chosen")), text_of(experts.at("count")), text_of(experts.at("ff")),
                                 text_of(experts.at("layers")), text_of(json.at("active_parameters")),
                                 format_count(json.at("active_parameters").get<int64_t>())));
    }
    row("vocabulary", fmt::format("{}, embedding and head {}", text_of(json.at("vocab")),
                                  json.at("tied").get<bool>() ? "tied" : "apart"));
    row("context", fmt::format("{} tokens", text_of(json.at("context"))));
  }
  if (const ordered_json& weights = json.at("weights"); !weights.is_null()) {
    std::vector<std::string> types;
    for (const auto& [type, bytes] : weights.at("bytes_by_type").items())
      types.push_back(fmt::format("{} {}", format_bytes(bytes.get<int64_t>()), type));
    row("weights", fmt::format("{} in {} tensors, {} file{}", fmt::join(types, ", "), text_of(weights.at("tensors")),
                               text_of(weights.at("shards")), weights.at("shards") == 1 ? "" : "s"));
  }
  const ordered_json& tokenizer = json.at("tokenizer");
  row("tokenizer", tokenizer.at("kind").is_null()
                       ? std::string("none")
                       : fmt::format("{}, {} ids, {} chat template", text_of(tokenizer.at("kind")),
                                     tokenizer.at("vocab").is_null() ? "?" : text_of(tokenizer.at("vocab")),
                                     tokenizer.at("chat_template").get<bool>() ? "with a" : "no"));
  const ordered_json& ids = json.at("ids");
  row("ids", fmt::format("bos {}, eos {}, pad {}", text_of(ids.at("bos_token_id")), text_of(ids.at("eos_token_id")),
                         text_of(ids.at("pad_token_id"))));
  if (const ordered_json& training = json.at("training"); !training.is_null()) {
    const ordered_json& bf16 = training.at("bf16");
    row("to train",
        fmt::format(
            "{} of state (12 bytes a parameter), {} with waiting gradients (14; fp32: 16); see 'megatrain plan'",
            format_bytes(bf16.at("state_bytes").get<int64_t>()),
            format_bytes(bf16.at("with_gradients_bytes").get<int64_t>())));
  }
  for (const ordered_json& problem : json.at("problems")) row("problem", problem.get<std::string>());
  if (!options.tensors || json.at("weights").is_null()) return;
  Table table({"tensor", "type", "shape"});
  for (const ordered_json& tensor : json.at("weights").at("list"))
    table.row({text_of(tensor.at("name")), text_of(tensor.at("type")),
               format_shape(tensor.at("shape").get<std::vector<int64_t>>())});
  fmt::print("\n{}", table.text());
}

}  // namespace

int inspect_model(const std::string& directory, const InspectOptions& options) {
  Found found = look(directory);
  const ordered_json json = describe(directory, found, options);
  if (options.json) {
    fmt::print("{}\n", json_text(json, 1));
  } else {
    print(json, options);
  }
  return 0;
}

}  // namespace megatrain
