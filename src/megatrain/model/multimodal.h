// The text part of a multimodal model's config.json.
#pragma once

#include <string>

#include "megatrain/hub/model_files.h"
#include "megatrain/io/json.h"

namespace megatrain {

struct TextPart {
  nlohmann::json config;  // config.json of the text model by itself
  std::string where;      // names its fields in errors
  std::string part_of;    // the multimodal class
};

// Whether config.json is of a class of Family::part_of.
bool is_multimodal(const nlohmann::json& config);

// Reads the text model's fields from text_config, and from the outer object those that transformers takes from there.
// `where` names config.json in errors. Throws Error(bad_input) for fields outside text_config that are unknown, or that
// contradict it.
TextPart text_part_of(const nlohmann::json& config, const std::string& where);

// The files of a model directory; those of a multimodal model as their text model alone (ModelFiles::take_text_model).
ModelFiles open_model_files(const std::string& directory);

// The object of config.json that has the text model's fields.
nlohmann::json& text_fields(nlohmann::json& config);

}  // namespace megatrain
