// Writes LoRA adapters as one GGUF file, which llama.cpp adds to a model of the same base as it loads it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megatrain/gguf/write_gguf.h"

namespace megatrain {

struct GgufAdapterRequest {
  std::string path;  // of the file
  GgufType type = GgufType::f32;
  std::string name;  // general.name
  ModelConfig model;
  double alpha = 0;
  std::vector<const TensorSpec*> halves;  // A and B of every adapter
};

// `values` has every half by its name. llama.cpp scales by alpha / rank; where the adapter has another scale, its B
// half takes the difference. Throws as write_gguf() does.
GgufReport write_gguf_adapter(const GgufAdapterRequest& request,
                              const std::map<std::string, std::vector<float>>& values);

}  // namespace megatrain
