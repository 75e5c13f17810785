// Writes a GGUF file (version 3, little endian): metadata, then a table of tensors, then their bytes, which arrive in
// order and in pieces.
//
// Bytes go to a file in PATH.partial (io/new_output.h); finish() makes them durable and gives the file its name.
// Without finish() nothing is left behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "megatrain/gguf/tensor_type.h"
#include "megatrain/io/file.h"
#include "megatrain/io/new_output.h"

namespace megatrain {

using GgufValue = std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<std::string>,
                               std::vector<float>, std::vector<int32_t>>;

// Keys in the order in which they were added.
class GgufMetadata {
 public:
  void add(std::string key, GgufValue value);  // no key twice
  const GgufValue* find(std::string_view key) const;
  const std::vector<std::pair<std::string, GgufValue>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<std::string, GgufValue>> entries_;
};

struct GgufTensorEntry {
  std::string name;
  std::vector<int64_t> shape;  // as safetensors has it, the last dimension being the contiguous one
  GgufType type = GgufType::f32;

  int64_t elements() const;
  int64_t bytes() const { return gguf_bytes(type, elements()); }
};

class GgufFile {
 public:
  // Reserves the whole file, so that a disk that is too full is Error(io) here. Error(bad_config) where `path` is there
  // or another process writes it, Error(io) where PATH.partial is no export's.
  GgufFile(const std::string& path, const GgufMetadata& metadata, const std::vector<GgufTensorEntry>& tensors);
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  // The next bytes of this tensor; tensors are written in the order of the table, each to its end.
  void write(size_t tensor, const std::vector<std::byte>& bytes);

  // Every byte must have been written. The file is durable under its name when this returns.
  void finish();

  int64_t bytes() const { return end_; }

 private:
  struct Range {
    int64_t next, end;
  };
  NewOutput output_;
  File file_;  // closed before output_ is removed
  std::vector<Range> tensors_;
  int64_t end_ = 0;
};

}  // namespace megatrain
