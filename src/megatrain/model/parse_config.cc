#include "megatrain/model/parse_config.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/io/json.h"
#include "megatrain/model/parts/config_reader.h"
#include "megatrain/model/family.h"
#include "megatrain/model/fp8_tensors.h"
#include "megatrain/model/known_fields.h"
#include "megatrain/model/multimodal.h"
#include "megatrain/model/refused_classes.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

// transformers selects the model by model_type and ignores architectures, so both must agree.
const Family& find_family(const ConfigReader& r) {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    names.push_back(family.architecture);
    for (const MultimodalClass& outer : family.part_of) names.push_back(outer.architecture);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());  // a class may have text parts of several families
  const std::string type = r.string("model_type", "");
  if (!r.has("architectures")) {
    for (const Family& family : families())
      if (has_model_type(family, type)) return family;
  }
  if (!r.has("architectures") || !r.at("architectures").is_array() || r.at("architectures").size() != 1 ||
      !r.at("architectures")[0].is_string()) {
    fail_input(
        fmt::format("{}: 'architectures' must be a list with one name, such as [\"{}\"]", r.where(), names.front()));
  }
  const std::string name = r.at("architectures")[0].get<std::string>();
  const auto found = std::find_if(families().begin(), families().end(),
                                  [&](const Family& family) { return family.architecture == name; });
  if (found == families().end()) {
    const std::optional<RefusedClass> refused = refused_class(name);
    const std::string why = refused ? fmt::format(": {}; nearest: {}", refused->reason, refused->nearest) : "";
    fail_input(fmt::format("{}: architecture '{}' is not supported{}; supported are {}", r.where(), name, why,
                           fmt::join(names, ", ")));
  }
  if (!type.empty() && !has_model_type(*found, type)) {
    fail_input(
        fmt::format("{}: 'model_type' is '{}' and 'architectures' is [\"{}\"], whose model_type is '{}'; "
                    "transformers uses model_type: correct the wrong one",
                    r.where(), type, name, found->model_type));
  }
  return *found;
}

}  // namespace

ModelConfig parse_model_config(const nlohmann::json& object, const std::string& where) {
  if (is_multimodal(object)) {
    const TextPart text = text_part_of(object, where);
    ModelConfig config = parse_model_config(text.config, text.where);
    config.part_of = text.part_of;
    return config;
  }
  const ConfigReader reader(object, where);
  const Family& family = find_family(reader);
  check_known_fields(reader, family.fields);
  ModelConfig config;
  config.architecture = family.architecture;
  family.read(reader, config);
  if (!config.mxfp4_experts) config.fp8_exceptions = read_fp8_exceptions(reader);
  check_rope_is_finite(config.rope, config.full_head_dim(), where);
  if (config.window_rope) check_rope_is_finite(*config.window_rope, config.head_dim, where);
  return config;
}

}  // namespace megatrain
