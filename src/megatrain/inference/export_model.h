// `megatrain export`: writes a model for serving, as a Hugging Face or PEFT directory or as a GGUF file.
#pragma once

#include <optional>
#include <string>

#include "megatrain/io/json.h"

namespace megatrain {

struct ExportQuestion {
  std::string from;                  // a run or a checkpoint; with gguf also a model's directory or name
  std::string out;                   // must not exist
  std::optional<std::string> dtype;  // bf16, fp32; empty: as trained
  std::optional<std::string> gguf;   // f32, bf16, f16, q8_0: a GGUF file
  bool adapter = false;              // what `from` is expected to hold; a run that trains adapters exports them anyway
};

// What was written: docs/reference/cli.md, "export". Messages name the options of that verb.
nlohmann::json export_model(const ExportQuestion& question);

}  // namespace megatrain
