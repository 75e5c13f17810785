#include "megatrain/model/multimodal.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/hub/text_names.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/parts/config_reader.h"
#include "megatrain/model/family.h"
#include "megatrain/model/known_fields.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr const char* kText = "text_config";

// Fields that many classes have, and that concern other parts than the text model.
const std::set<std::string> kOtherParts = {
    "audio_config",
    "audio_token_id",
    "boa_token_id",
    "boi_token_id",
    "boi_token_index",
    "eoa_token_id",
    "eoa_token_index",
    "eoi_token_id",
    "eoi_token_index",
    "image_token_id",
    "image_token_index",
    "mm_tokens_per_image",
    "multimodal_projector_bias",
    "projector_hidden_act",
    "spatial_merge_size",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_feature_layer",
    "vision_feature_select_strategy",
    "vision_start_token_id",
    "vision_token_id",
};

// Fields that the outer object may have too, without a meaning for the text model.
const std::set<std::string> kOwn = {"architectures", "initializer_range", "model_type", "pad_token_id", kText};

struct Found {
  const Family* family;
  const MultimodalClass* outer;
};

// All pairs of a family and a class that may have it as a part.
std::vector<Found> pairs() {
  std::vector<Found> all;
  for (const Family& family : families()) {
    for (const MultimodalClass& outer : family.part_of) all.push_back({&family, &outer});
  }
  return all;
}

// The pairs of the class that config.json names.
std::vector<Found> named_by(const json& config) {
  std::vector<Found> all = pairs();
  const json names = config.value("architectures", json());
  const json type = config.value("model_type", json());
  std::erase_if(all, [&](const Found& found) {
    if (names.is_null()) return type != found.outer->model_type;
    return !names.is_array() || names.size() != 1 || names[0] != found.outer->architecture;
  });
  return all;
}

// The pair whose text model has the model_type of text_config.
Found find_pair(const json& config, const ConfigReader& text, const std::string& where) {
  const std::vector<Found> candidates = named_by(config);
  const MultimodalClass& first = *candidates.front().outer;
  if (config.contains("model_type") && config.at("model_type") != first.model_type)
    fail_input(
        fmt::format("{}: 'model_type' is {} and 'architectures' is [\"{}\"], whose model_type is '{}'; transformers "
                    "uses model_type: correct the wrong one",
                    where, config.at("model_type").dump(), first.architecture, first.model_type));
  const std::string type = text.object() == config ? first.text_type : text.string("model_type", first.text_type);
  std::vector<std::string> types;
  for (const Found& candidate : candidates) {
    if (candidate.outer->text_type == type || has_model_type(*candidate.family, type)) return candidate;
    types.push_back(candidate.outer->text_type);
  }
  fail_input(fmt::format("{}: 'model_type' is '{}'; the text part of {} is read if it is {}", text.where(), type,
                         first.architecture, fmt::join(types, " or ")));
}

// A text has the same positions on all axes of a RoPE with several, which then is one with a single axis.
void drop_axes(json& text) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!text.contains(key) || !text.at(key).is_object()) continue;
    json& rope = text.at(key);
    rope.erase("mrope_section");
    rope.erase("mrope_interleaved");
    if (rope.value("rope_type", json()) == "mrope") rope["rope_type"] = "default";
    if (rope.value("type", json()) == "mrope") rope["type"] = rope.value("rope_type", json("default"));
  }
}

// Modules that are not quantised, by the names that they have in the text model alone.
void rename_exceptions(json& text) {
  if (!text.contains("quantization_config") || !text.at("quantization_config").is_object()) return;
  for (const char* key : {"modules_to_not_convert", "ignored_layers"}) {
    json& quantised = text.at("quantization_config");
    if (!quantised.contains(key) || !quantised.at(key).is_array()) continue;
    for (json& name : quantised.at(key)) {
      if (!name.is_string()) continue;
      const std::string text_name = name;
      name = find_text_names({text_name}).in_model(text_name).value_or(text_name);
    }
  }
}

bool has_theta(const json& text) {
  return std::ranges::any_of(std::vector<const char*>{"rope_scaling", "rope_parameters"}, [&](const char* key) {
    return text.contains(key) && text.at(key).is_object() && text.at(key).contains("rope_theta");
  });
}

void fill_absent(json& text, const json& absent) {
  for (const auto& [key, value] : absent.items()) {
    if (text.contains(key) || (key == "rope_theta" && has_theta(text))) continue;
    text[key] = value;
  }
}

// Takes what transformers reads from the outer object. Everything else there is known not to matter, or equal to the
// field of the text model.
void take_outer(const json& config, const MultimodalClass& outer, const std::string& where, json& text) {
  const auto is = [](const std::string& key, std::initializer_list<const char*> keys) {
    return std::ranges::find(keys, key) != keys.end();
  };
  if (config.contains("dtype") || config.contains("torch_dtype")) {
    text.erase("dtype");
    text.erase("torch_dtype");
  }
  json rest = json::object();
  for (const auto& [key, value] : config.items()) {
    if (kOwn.contains(key) || kOtherParts.contains(key) || std::ranges::find(outer.fields, key) != outer.fields.end())
      continue;
    if (is(key, {"dtype", "torch_dtype", "tie_word_embeddings", "quantization_config", "auto_map"})) {
      text[key] = value;
    } else if (decides_model(key) && !value.is_null()) {
      // A file of a flat class that was saved with text_config has the fields twice, and there with defaults filled in.
      const bool filled_in = outer.flat && (!text.contains(key) || text.at(key).is_null());
      if (!filled_in && (!text.contains(key) || text.at(key) != value))
        fail_input(fmt::format(
            "{}: '{}' is {} beside text_config, where it is {}; transformers reads the one in text_config: "
            "remove the other",
            where, key, value.dump().substr(0, 80), text.contains(key) ? text.at(key).dump().substr(0, 80) : "absent"));
    } else {
      rest[key] = value;
    }
  }
  check_known_fields(ConfigReader(rest, where), {});
}

}  // namespace

bool is_multimodal(const json& config) { return config.is_object() && !named_by(config).empty(); }

json& text_fields(json& config) {
  return config.is_object() && config.contains(kText) && config.at(kText).is_object() ? config.at(kText) : config;
}

TextPart text_part_of(const json& config, const std::string& where) {
  const bool flat = !config.contains(kText) || config.at(kText).is_null();
  const ConfigReader text(flat ? config : config.at(kText), flat ? where : fmt::format("{}: {}", where, kText));
  const auto [family, outer] = find_pair(config, text, where);
  if (flat && !outer->flat)
    fail_input(fmt::format("{}: '{}' is missing; {} needs it", where, kText, outer->architecture));
  json fields = text.object();
  if (flat) {
    std::erase_if(fields.get_ref<json::object_t&>(), [&, &others = outer->fields](const auto& field) {
      return kOtherParts.contains(field.first) || field.first == kText ||
             std::ranges::find(others, field.first) != others.end();
    });
  } else {
    take_outer(config, *outer, where, fields);
  }
  for (const auto& [key, value] : outer->only.items()) {
    if (!fields.contains(key) || fields.at(key).is_null() || fields.at(key) == value) continue;
    fail_input(fmt::format("{}: '{}' is {}, which {} does not read; it must be {}", text.where(), key,
                           fields.at(key).dump(), outer->architecture, value.dump()));
  }
  fill_absent(fields, outer->absent);
  drop_axes(fields);
  rename_exceptions(fields);
  fields["architectures"] = json::array({family->architecture});
  fields["model_type"] = family->model_type;
  return {.config = std::move(fields), .where = text.where(), .part_of = outer->architecture};
}

namespace {

// By its model_type; nullptr: no family has that.
const Family* family_of_type(const json& config) {
  const std::string type = config.is_object() ? config.value("model_type", json()).dump() : "";
  const auto found =
      std::ranges::find_if(families(), [&](const Family& family) { return json(family.model_type).dump() == type; });
  return found == families().end() ? nullptr : &*found;
}

}  // namespace

ModelFiles open_model_files(const std::string& directory) {
  ModelFiles files(directory);
  const std::string path = directory + "/config.json";
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return files;
  const json config = read_json_file(path);
  if (is_multimodal(config)) {
    files.take_text_model();
  } else if (const Family* family = family_of_type(config); family && family->file_names != TextNames()) {
    files.rename(family->file_names);
  }
  return files;
}

}  // namespace megatrain
