// Writes a safetensors file whose tensors arrive in any order, in pieces, from any thread.
//
// Data is written to PATH.partial; finish() makes it durable and renames it. Without finish() nothing is left behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/hub/stored_type.h"
#include "megatrain/io/file.h"
#include "megatrain/tensor/dtype.h"

namespace megatrain {

struct TensorDeclaration {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::optional<StoredType> copied = {};  // of a tensor whose bytes are those of another file; then `dtype` is unused

  StoredType type() const { return copied.value_or(to_stored_type(dtype)); }
  int64_t elements() const;  // product of the shape; throws if it overflows
  int64_t bytes() const { return elements() * stored_type_bytes(type()); }
};

// An upper bound for a tensor's entry in the file header.
int64_t header_entry_bytes(const TensorDeclaration& tensor);

class SafetensorsWriter {
 public:
  // Names must be unique. Tensors are stored in the given order, but wider element types first, so all are naturally
  // aligned.
  SafetensorsWriter(std::string path, std::vector<TensorDeclaration> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Writes bytes [byte_offset, byte_offset + bytes) of a tensor; no byte may be written twice. Thread-safe.
  void write(const std::string& name, int64_t byte_offset, const void* data, int64_t bytes);

  // Writes elements [element_offset, element_offset + count), converted to the tensor's type. Thread-safe.
  void write_f32(const std::string& name, int64_t element_offset, const float* data, int64_t count);

  // Every byte must have been written. When this returns, the file is durable under its final name.
  void finish();

  const std::string& path() const { return path_; }
  int64_t file_bytes() const { return file_bytes_; }

 private:
  struct Slot {
    TensorDeclaration tensor;
    int64_t begin = 0;                   // bytes from the start of the file
    std::map<int64_t, int64_t> written;  // disjoint byte ranges begin -> end, merged
  };
  Slot& slot_of(const std::string& name);
  void note_written(Slot& slot, int64_t begin, int64_t end);

  std::string path_;
  PartialPath partial_;
  File file_;  // closed before partial_ is removed
  int64_t file_bytes_ = 0;
  std::mutex mutex_;  // guards Slot::written
  std::map<std::string, Slot> slots_;
};

}  // namespace megatrain
