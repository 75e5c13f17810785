// Reads a safetensors file by mmap. A file that opens is whole: its offsets tile the data exactly, so every tensor's
// bytes lie inside the mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/io/file.h"
#include "megatrain/hub/stored_type.h"

namespace megatrain {

struct StoredTensor {
  std::string name;
  StoredType dtype = StoredType::f32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;  // bytes of the mapping; not aligned in general
  int64_t bytes = 0;

  int64_t elements() const { return bytes / stored_type_bytes(dtype); }
};

struct SafetensorsContents {
  std::vector<StoredTensor> tensors;            // sorted by name
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

// Checks a whole file's bytes; throws Error(bad_input) naming `path`, the tensor, what was found and expected.
SafetensorsContents parse_safetensors(const std::byte* file, int64_t bytes, const std::string& path);

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<StoredTensor>& tensors() const { return contents_.tensors; }  // sorted by name
  const std::map<std::string, std::string>& metadata() const { return contents_.metadata; }
  std::vector<std::string> names() const;
  const StoredTensor* find(std::string_view name) const;  // null when absent
  // Error(io) where the file was cut since it was opened; to be called when its tensors have been read.
  void check_whole() const { file_.check_whole(); }

 private:
  MappedFile file_;
  SafetensorsContents contents_;
};

// "(4096, 1024)"
std::string format_shape(const std::vector<int64_t>& shape);

// Gives the mapping's resident pages back once a tensor has been read, so that loading a model does not hold it twice.
// The tensor stays readable.
void release_pages(const StoredTensor& tensor);

}  // namespace megatrain
