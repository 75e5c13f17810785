// Reads the rows of a user's JSON file one by one, each with its place for errors. Like datasets, the file is JSON
// Lines or one array, and errors have the same wording.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/dataset/sample_blocks.h"
#include "megatrain/io/json.h"

namespace megatrain {

struct JsonRow {
  std::string where;              // "FILE:3: ", the beginning of an error message
  int64_t line = 0;               // where it begins, counted from 1
  nlohmann::ordered_json object;  // without null columns: a table has all columns in all rows
};

class JsonRows {
 public:
  explicit JsonRows(const std::string& path);

  // Empty at the end. Error(bad_input) for a row that is not a JSON object, and at the end of a file without rows.
  std::optional<JsonRow> next();

 private:
  std::string path_;
  SampleBlocks blocks_;
  SampleBlock block_;
  size_t next_ = 0;  // index in the block's samples
  bool any_ = false;
};

// A field that must be a string.
std::string text_field(const JsonRow& row, const char* name);

// A conversation: a non-empty array of {"role": ..., "content": ...}.
nlohmann::ordered_json messages_field(const JsonRow& row);

}  // namespace megatrain
