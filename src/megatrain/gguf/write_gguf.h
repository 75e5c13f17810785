// Writes a model as one GGUF file for llama.cpp and programs built on it: weights, tokenizer, chat template.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megatrain/chat/model_text.h"
#include "megatrain/gguf/tensor_type.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

struct GgufRequest {
  std::string path;  // of the file
  GgufType type = GgufType::bf16;
  std::string name;  // general.name
  ModelConfig model;
  std::vector<const TensorSpec*> tensors;  // all tensors of the model
};

struct GgufReport {
  int64_t bytes = 0;  // size of the file
  int64_t tensors = 0;
  std::string architecture;  // llama.cpp's name for it
};

// Weights are read and written in pieces, so that only a few MiB are held at once. `done` is called for every tensor of
// the model once it is not read again. Throws Error(io) before writing anything when the disk lacks room; models that
// are refused are reported before that.
GgufReport write_gguf(const GgufRequest& request, const ModelText& text, const PartReader& read,
                      const std::function<void(const TensorSpec&)>& done);

}  // namespace megatrain
