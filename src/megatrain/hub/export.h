// Writes a Hugging Face directory: shards, index, config.json, tokenizer files.
//
// Everything is written to DIRECTORY.partial; finish() makes it durable and atomically replaces DIRECTORY. Without
// finish() nothing is left behind and DIRECTORY is unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/hub/safetensors_writer.h"

namespace megatrain {

inline constexpr int64_t kMaxShardBytes = 5'000'000'000;

struct ExportRequest {
  std::string directory;
  std::vector<TensorDeclaration> tensors;  // in the order of the shards
  std::string config_json;                 // contents of config.json
  std::string source_directory;            // copy its companions (companions.h); empty: none
  std::string chat_template;  // contents of chat_template.jinja, then the only template; empty: the source's own
  int64_t max_shard_bytes = kMaxShardBytes;  // size of a file; only a single larger tensor may exceed it
  // Contents of adapter_config.json: the tensors are adapters, and go into one file as PEFT names it. Empty: a model.
  std::string adapter_json = {};
};

struct ExportReport {
  std::vector<std::string> shards;  // file names
  std::vector<std::string> copied;  // file names, relative to the directory
  int64_t tensor_bytes = 0;
  std::string kept;  // where an existing DIRECTORY with foreign files was moved; empty if there was none
};

class ModelExport {
 public:
  // Refuses a directory that is the source directory, and a path that is not a directory.
  explicit ModelExport(ExportRequest request);
  ModelExport(const ModelExport&) = delete;
  ModelExport& operator=(const ModelExport&) = delete;

  // The same as SafetensorsWriter's; thread-safe.
  void write(const std::string& name, int64_t byte_offset, const void* data, int64_t bytes);
  void write_f32(const std::string& name, int64_t element_offset, const float* data, int64_t count);

  // Every byte of every tensor must have been written.
  ExportReport finish();

 private:
  SafetensorsWriter& shard_of(const std::string& name);
  void open_shards();

  ExportRequest request_;
  PartialPath partial_;
  ExportReport report_;
  std::vector<std::unique_ptr<SafetensorsWriter>> shards_;
  std::map<std::string, size_t> shard_by_tensor_;
};

// Writes such a directory without weights: only config.json and the companions, for a run that is exported later. It
// replaces the directory atomically, as ModelExport does. Returns the names of the copied files.
std::vector<std::string> write_companions(ExportRequest request);

// Renames whatever is at `directory`, as finish() does with a directory that is not an export, and logs the reason
// `why`.
void keep_aside(const std::string& directory, const std::string& why);

// Cleans up after a killed export to `directory`: removes a half-written one, and restores the name of an existing
// directory that was already moved aside. Logs each. Must not run while something else exports there.
void recover_export(const std::string& directory);

}  // namespace megatrain
