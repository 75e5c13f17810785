// The rows of a JSON file that a person wrote, one after another, each with its place for errors. Read as datasets are:
// JSON Lines or one array, with the same sentences for what is wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/dataset/sample_blocks.h"
#include "megatrain/io/json.h"

namespace megatrain {

struct JsonRow {
  std::string where;              // "FILE:3: ", the beginning of a sentence
  int64_t line = 0;               // where it begins, from 1
  nlohmann::ordered_json object;  // without the columns that are null: a table has all columns in all rows
};

class JsonRows {
 public:
  explicit JsonRows(const std::string& path);

  // Nothing at the end. Error(bad_input) for a row that is no JSON object, and at the end of a file without any.
  std::optional<JsonRow> next();

 private:
  std::string path_;
  SampleBlocks blocks_;
  SampleBlock block_;
  size_t next_ = 0;  // of the block's samples
  bool any_ = false;
};

// A field that must be a string.
std::string text_field(const JsonRow& row, const char* name);

// A conversation: an array of {"role": ..., "content": ...} that is not empty.
nlohmann::ordered_json messages_field(const JsonRow& row);

}  // namespace megatrain
