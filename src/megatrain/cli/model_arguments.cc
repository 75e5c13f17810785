#include "megatrain/cli/model_arguments.h"

#include "megatrain/inference/loaded_model.h"

namespace megatrain {

std::vector<std::string> with_loaded_model_options(std::vector<std::string> options) {
  for (const std::string key : kModelSettings) options.push_back("--" + key);
  return options;
}

std::vector<std::string> loaded_model_settings(const Arguments& arguments) {
  std::vector<std::string> settings;
  for (const std::string key : kModelSettings) {
    const std::string option = "--" + key;
    if (const auto value = arguments.option(option)) settings.push_back(option + "=" + *value);
  }
  return settings;
}

}  // namespace megatrain
