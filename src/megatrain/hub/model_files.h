// The weights of a Hugging Face directory (one safetensors file, or an index and its shards), or of one file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/hub/safetensors.h"

namespace megatrain {

class ModelFiles {
 public:
  // A directory with model.safetensors or model.safetensors.index.json, or the path of one .safetensors file.
  explicit ModelFiles(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  const std::vector<const StoredTensor*>& tensors() const { return tensors_; }  // sorted by name
  const StoredTensor* find(std::string_view name) const;                        // null when absent

  // The tensor as a parameter of this shape; Error(bad_input) when it is absent, has another shape, or a type that
  // cannot be read as a parameter.
  const StoredTensor& parameter(std::string_view name, const std::vector<int64_t>& shape) const;

  // Error(io) where a file was cut since it was opened; to be called when tensors have been read.
  void check_whole() const;

  // The file that holds `tensor`, for messages.
  const std::string& file_of(const StoredTensor& tensor) const;

 private:
  void open_index(const std::string& index_path);
  void gather();

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<const StoredTensor*> tensors_;
};

// Files of a model directory's weights that are not there: shards that its index names, or model.safetensors when there
// is neither. Empty: all are, or they are in a format that ModelFiles refuses.
std::vector<std::string> missing_weights(const std::string& directory);

}  // namespace megatrain
