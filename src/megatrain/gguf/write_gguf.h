// A model into one GGUF file that llama.cpp and what stands on it reads: weights, tokenizer, chat template.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megatrain/chat/model_text.h"
#include "megatrain/gguf/tensor_type.h"
#include "megatrain/model/config.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

struct GgufRequest {
  std::string path;  // of the file
  GgufType type = GgufType::bf16;
  std::string name;  // general.name
  ModelConfig model;
  std::vector<const TensorSpec*> tensors;  // all of the model's
};

struct GgufReport {
  int64_t bytes = 0;  // of the file
  int64_t tensors = 0;
  std::string architecture;  // llama.cpp's name of it
};

// Weights are read and written piece by piece, so that no more than some MiB of them are held. `done` is called with
// every tensor of the model that is not read again. Error(io) before anything is written where the disk lacks the room;
// what is refused is told before that.
GgufReport write_gguf(const GgufRequest& request, const ModelText& text, const PartReader& read,
                      const std::function<void(const TensorSpec&)>& done);

}  // namespace megatrain
