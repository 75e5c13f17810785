// The tensors of a multimodal model that are not of its text part: a vision tower, a projector, layers of multi-token
// prediction. An export has them byte for byte, under the names that they have in the source.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/hub/model_files.h"
#include "megatrain/hub/safetensors_writer.h"
#include "megatrain/model/layers/model_config.h"

namespace megatrain {

class KeptTensors {
 public:
  // None, for a model that is whole. Names in files are then those of the model.
  KeptTensors() = default;
  // Those of a model's directory, or of a copy that write_copy() made in `directory`. Reads only headers. Throws
  // Error(bad_input).
  KeptTensors(const std::string& directory, const ModelConfig& config);

  struct Tensor {
    TensorDeclaration declaration;
    const std::byte* data;
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }  // sorted by name
  int64_t bytes() const;
  void declare(std::vector<TensorDeclaration>& declarations) const;  // adds them

  // The name in files of a tensor of the text model.
  std::string name_in_files(const std::string& name) const { return names_.in_files(name); }

  // Throws Error(io) if a file was truncated since it was opened. Call it after reading tensors.
  void check_whole() const;

  // Calls `write` for the bytes of all tensors in pieces, one after the other.
  using Write = std::function<void(const std::string& name, int64_t offset, const std::byte* data, int64_t bytes)>;
  void copy(const Write& write) const;

  // Writes DIRECTORY/kKeptFile, from which the constructor reads the same again.
  void write_copy(const std::string& directory) const;

  // "435 tensors, 802 MiB (multi_modal_projector, vision_tower)"; empty: there are none.
  std::string description() const;
  bool has_prediction_layers() const;  // of multi-token prediction

 private:
  void add(const std::string& name, const StoredTensor& tensor);

  std::unique_ptr<const ModelFiles> files_;
  TextNames names_;
  std::vector<Tensor> tensors_;
};

inline constexpr const char* kKeptFile = "model_kept.safetensors";

}  // namespace megatrain
