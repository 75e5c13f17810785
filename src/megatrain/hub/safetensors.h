// Reads a safetensors file by mmap. A file that opens is complete: its offsets tile the data exactly, so every tensor's
// bytes are inside the mapping.
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
  const std::byte* data = nullptr;  // in the mapping; usually not aligned
  int64_t bytes = 0;

  int64_t elements() const { return bytes / stored_type_bytes(dtype); }
};

struct SafetensorsContents {
  std::vector<StoredTensor> tensors;            // sorted by name
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

// Checks the bytes of a whole file. Throws Error(bad_input) with `path`, the tensor, and what was found and expected.
SafetensorsContents parse_safetensors(const std::byte* file, int64_t bytes, const std::string& path);

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<StoredTensor>& tensors() const { return contents_.tensors; }  // sorted by name
  const std::map<std::string, std::string>& metadata() const { return contents_.metadata; }
  std::vector<std::string> names() const;
  const StoredTensor* find(std::string_view name) const;                                      // nullptr if absent
  int64_t offset_of(const StoredTensor& tensor) const { return tensor.data - file_.data(); }  // bytes into the file
  int64_t bytes() const { return file_.bytes(); }
  // Throws Error(io) if the file was truncated since it was opened. Call it after reading its tensors.
  void check_whole() const { file_.check_whole(); }

 private:
  MappedFile file_;
  SafetensorsContents contents_;
};

// "(4096, 1024)"
std::string format_shape(const std::vector<int64_t>& shape);

// Drops the mapping's resident pages once a tensor has been read, so that loading a model does not hold it twice. The
// tensor stays readable. A large tensor is released in pieces of elements [begin, begin + count), as they are read.
void release_pages(const StoredTensor& tensor);
void release_pages(const StoredTensor& tensor, int64_t begin, int64_t count);

}  // namespace megatrain
