#include "megatrain/model/presets.h"

#include <cctype>

#include "megatrain/model/family.h"

namespace megatrain {

namespace {

// Without what people write in several ways: glm4.5air for GLM-4.5-Air.
std::string plain_name(const std::string& name) {
  std::string plain;
  for (const char c : name) {
    if (c != '-' && c != '_') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return plain;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    for (const Family::Preset& preset : family.presets) names.push_back(preset.name);
  }
  return names;
}

std::optional<nlohmann::json> preset_config(const std::string& name) {
  for (const Family& family : families()) {
    for (const Family::Preset& preset : family.presets) {
      if (plain_name(preset.name) == plain_name(name)) return preset.config;
    }
  }
  return {};
}

}  // namespace megatrain
