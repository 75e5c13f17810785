// The names of a text model's tensors in the files of a multimodal model that has it as a part.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace megatrain {

// In the files "model.…" begins with `model`, and "lm_head.…" with `head`.
//
//   language_model.model.layers.0.…         language_model.lm_head.weight   Gemma 3, Mistral 3
//   model.language_model.layers.0.…         lm_head.weight                  Qwen3-VL, and modules of transformers 5
//   model.layers.0.…                        lm_head.weight                  Qwen2.5-VL
//   backbone.layers.0.…                     lm_head.weight                  Nemotron-H, which is whole
struct TextNames {
  std::string model = "model.";
  std::string head = "lm_head.";

  // The name in files of a tensor of the text model.
  std::string in_files(const std::string& name) const;
  // Its inverse; nullopt: the tensor belongs to another part.
  std::optional<std::string> in_model(const std::string& name) const;

  bool operator==(const TextNames&) const = default;
};

inline const TextNames kBackboneNames = {.model = "backbone.", .head = "lm_head."};
inline const TextNames kModuleNames = {.model = "model.language_model.", .head = "lm_head."};

// The form that these names of a multimodal model's tensors have.
TextNames find_text_names(const std::vector<std::string>& names);

}  // namespace megatrain
