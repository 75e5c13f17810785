// One GGUF file from a run, a checkpoint or a model directory.
#pragma once

#include <cstdint>
#include <string>

#include "megatrain/gguf/write_gguf.h"

namespace megatrain {

struct ExportedGguf {
  std::string from;   // the checkpoint, RUN/model or the directory
  int64_t step = -1;  // of a run; -1: of none
  GgufReport file;
};

// Throws Error(bad_config) when `out` is there already, and Error(bad_input) for what a GGUF file cannot hold.
ExportedGguf export_gguf(const std::string& path, const std::string& out, GgufType type);

}  // namespace megatrain
