// Writes a GGUF file (version 3, little endian): metadata, then a table of tensors, then their data, which arrives in
// order and in pieces.
//
// Data goes to a file in PATH.partial (io/new_output.h); finish() makes it durable and renames it. Without finish()
// nothing is left behind.
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
  void add(std::string key, GgufValue value);  // keys must be unique
  const GgufValue* find(std::string_view key) const;
  const std::vector<std::pair<std::string, GgufValue>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<std::string, GgufValue>> entries_;
};

struct GgufTensorEntry {
  std::string name;
  std::vector<int64_t> shape;  // as in safetensors: the last dimension is contiguous
  GgufType type = GgufType::f32;

  int64_t elements() const;
  int64_t bytes() const { return gguf_bytes(type, elements()); }
};

class GgufFile {
 public:
  // Reserves the whole file, so a full disk is reported here as Error(io). Throws Error(bad_config) when `path` exists
  // or another process is writing it, and Error(io) when PATH.partial was not left by an export.
  GgufFile(const std::string& path, const GgufMetadata& metadata, const std::vector<GgufTensorEntry>& tensors);
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  // Writes the next bytes of this tensor. Tensors must be written completely and in the order of the table.
  void write(size_t tensor, const std::vector<std::byte>& bytes);

  // Every byte must have been written. When this returns, the file is durable under its final name.
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
