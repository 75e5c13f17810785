// Writes a Hugging Face directory: shards, index, config.json, tokenizer files.
//
// Everything goes to DIRECTORY.partial; finish() makes it durable and puts it in place of DIRECTORY in one step.
// Without finish() nothing is left behind and DIRECTORY is as it was.
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
  std::vector<TensorDeclaration> tensors;    // in the order they shall lie in the shards
  std::string config_json;                   // the text of config.json
  std::string source_directory;              // its companions (companions.h) are copied; empty: none
  std::string chat_template;                 // the text of chat_template.jinja, the only one; empty: the source's own
  int64_t max_shard_bytes = kMaxShardBytes;  // a file's size; only a single tensor larger than this exceeds it
};

struct ExportReport {
  std::vector<std::string> shards;  // file names
  std::vector<std::string> copied;  // file names, below the directory
  int64_t tensor_bytes = 0;
  std::string kept;  // where a former DIRECTORY with files of other origin was moved; empty when none
};

class ModelExport {
 public:
  // Refuses a directory that is the source directory, or not a directory.
  explicit ModelExport(ExportRequest request);
  ModelExport(const ModelExport&) = delete;
  ModelExport& operator=(const ModelExport&) = delete;

  // As SafetensorsWriter's; thread-safe.
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

// The same directory without weights or shards: config.json and the companions, for a run that is exported later.
// Replaced whole, as by ModelExport. Returns the names of what was copied.
std::vector<std::string> write_companions(ExportRequest request);

// Gives what stands under the name `directory` another one, as finish() does with what is not an export's, and says so
// with the reason `why`.
void keep_aside(const std::string& directory, const std::string& why);

// What a killed export to `directory` left: a half-written one is removed, a former directory that already had another
// name gets its own back, each with a line. Only while nothing else exports there.
void recover_export(const std::string& directory);

}  // namespace megatrain
