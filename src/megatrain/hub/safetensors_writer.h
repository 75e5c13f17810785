// Writes a safetensors file whose tensors arrive in any order, in pieces, from any thread.
//
// Bytes go to PATH.partial; finish() makes them durable and renames. Without finish() nothing is left behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "megatrain/io/file.h"
#include "megatrain/tensor/dtype.h"

namespace megatrain {

struct TensorDeclaration {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;

  int64_t elements() const;  // product of the shape; refuses one that wraps
  int64_t bytes() const { return elements() * dtype_bytes(dtype); }
};

// At least what a tensor's entry takes in a file's header.
int64_t header_entry_bytes(const TensorDeclaration& tensor);

class SafetensorsWriter {
 public:
  // Names are unique. Tensors lie in the order given, those of wider elements first, so all are naturally aligned.
  SafetensorsWriter(std::string path, std::vector<TensorDeclaration> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Bytes [byte_offset, byte_offset + bytes) of a tensor; no byte twice. Thread-safe.
  void write(const std::string& name, int64_t byte_offset, const void* data, int64_t bytes);

  // Elements [element_offset, element_offset + count), converted to the tensor's type. Thread-safe.
  void write_f32(const std::string& name, int64_t element_offset, const float* data, int64_t count);

  // Every byte must have been written. The file is durable under its name when this returns.
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
