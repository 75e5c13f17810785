#include "megatrain/model/presets.h"

#include "megatrain/model/family.h"

namespace megatrain {

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
      if (preset.name == name) return preset.config;
    }
  }
  return {};
}

}  // namespace megatrain
