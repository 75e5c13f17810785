// A run directory as somebody finds it later: what was trained, and how far it came.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/train/config.h"

namespace megatrain {

bool is_run_directory(const std::string& path);  // it has a config.resolved.yaml

struct RunFiles {
  std::string path;
  TrainConfig config;
  std::string model_config;         // the text of config.json; empty: neither the run nor its model has it any more
  std::string model_config_path;    // where it was found
  std::string tokenizer_directory;  // a model directory with the run's tokenizer; empty: not there any more
  std::optional<int64_t> complete_step;  // the run's last, when RUN/model is of that step; none: the run is not over
};

// Throws Error(bad_input) when the path is no run.
RunFiles read_run(const std::string& path);

}  // namespace megatrain
