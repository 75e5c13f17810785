// Exports a run, a checkpoint or a model directory as one GGUF file.
#pragma once

#include <cstdint>
#include <string>

#include "megatrain/gguf/write_gguf.h"

namespace megatrain {

struct ExportedGguf {
  std::string from;   // the checkpoint, RUN/model or the directory
  int64_t step = -1;  // of the run; -1: not from a run
  GgufReport file;
};

// A PEFT directory becomes a GGUF adapter. Throws Error(bad_config) when `out` exists, and Error(bad_input) for what a
// GGUF file cannot represent.
ExportedGguf export_gguf(const std::string& path, const std::string& out, GgufType type);

}  // namespace megatrain
