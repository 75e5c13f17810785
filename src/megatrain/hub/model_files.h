// The weights of a Hugging Face directory (one safetensors file, or an index with shards) or of a single file.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/hub/safetensors.h"
#include "megatrain/hub/text_names.h"

namespace megatrain {

class ModelFiles {
 public:
  // A directory with model.safetensors, model.safetensors.index.json or else adapter_model.safetensors, or the path of
  // one .safetensors file.
  explicit ModelFiles(const std::string& path);

  // For a multimodal model: tensors() and find() then have its text model alone, under the names that this has by
  // itself, and other_parts() the rest.
  void take_text_model();
  // For a model that is whole, with names of its own: those tensors get the names that the modules have.
  void rename(const TextNames& names);
  const TextNames& text_names() const { return text_names_; }
  const std::vector<const StoredTensor*>& other_parts() const { return other_parts_; }  // sorted by name

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  const std::vector<const StoredTensor*>& tensors() const { return tensors_; }  // sorted by name
  const StoredTensor* find(std::string_view name) const;                        // nullptr if absent

  // The tensor as a parameter of this shape. Throws Error(bad_input) when it is absent, has another shape, or has a
  // type that is not a parameter's.
  const StoredTensor& parameter(std::string_view name, const std::vector<int64_t>& shape) const;

  // Throws Error(io) if a file was truncated since it was opened. Call it after reading tensors.
  void check_whole() const;

  const SafetensorsFile& holder_of(const StoredTensor& tensor) const;  // the file that holds it
  // Its path, for messages.
  const std::string& file_of(const StoredTensor& tensor) const { return holder_of(tensor).path(); }

 private:
  bool of_adapter() const;
  void exchange_names(bool whole);
  void open_index(const std::string& index_path);
  void gather();

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<const StoredTensor*> tensors_;
  TextNames text_names_;
  std::list<StoredTensor> renamed_;
  std::vector<const StoredTensor*> other_parts_;
};

// The file with the weights of a PEFT directory. Throws Error(bad_input) if it is missing.
std::string adapter_weights_file(const std::string& directory);

// Throws Error(bad_input) for a PEFT directory whose weights are only in adapter_model.bin.
void refuse_pickled_adapter(const std::string& directory);

// Whether it is the directory of a model (config.json) or of adapters (adapter_config.json).
bool is_model_directory(const std::string& directory);

// The missing weight files of a model directory: shards that its index names, or model.safetensors if it has neither.
// Empty if all exist, or if they are in a format that ModelFiles refuses.
std::vector<std::string> missing_weights(const std::string& directory);

}  // namespace megatrain
