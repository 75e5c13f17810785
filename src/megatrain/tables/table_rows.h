// The rows of a Parquet or Arrow file as JSON objects, one after the other, in bounded memory.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "megatrain/tables/arrow/tables.h"
#include "megatrain/tables/json_cells.h"

namespace megatrain {

class TableRows {
 public:
  // Begins at row `row`, counted from 0. Error(bad_input), here or later, for a file that cannot be read.
  TableRows(const std::string& path, TableFormat format, int64_t row);
  TableRows(const TableRows&) = delete;  // a thread works on it
  TableRows& operator=(const TableRows&) = delete;

  bool at_end();
  // Appends the next row as a JSON object. False if that is longer than `most_bytes`; nothing is appended then.
  bool append_next(std::string& out, int64_t most_bytes);
  int64_t row() const { return row_; }                           // the next one
  int64_t stored_bytes() const { return batch_->stored_bytes; }  // of the file, read so far, roughly

 private:
  void decode_next();
  void take_next();

  std::string path_;
  std::unique_ptr<TableReader> table_;
  std::optional<JsonCells> cells_;
  std::unique_ptr<TableBatch> batch_ = std::make_unique<TableBatch>(), next_ = std::make_unique<TableBatch>();
  int64_t row_ = 0;       // of the table
  int64_t in_batch_ = 0;  // the same in the batch
  bool ended_ = false;
  // Decodes the next batch on a thread of its own. Last, so that the thread ends before what it works on.
  std::future<bool> decoding_;
};

}  // namespace megatrain
