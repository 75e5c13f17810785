// Opens Parquet and Arrow files with Apache Arrow's C++ library.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "megatrain/tables/arrow_abi.h"

namespace megatrain {

enum class TableFormat {
  parquet,
  arrow,  // Arrow's IPC format: a file (Feather version 2) or a stream, as the first bytes say
};

// Whether this build has Apache Arrow. Without it open_table() refuses.
bool has_arrow();

// Some rows of a table. Released with the object.
class TableBatch {
 public:
  TableBatch() = default;
  ~TableBatch() { release(); }
  TableBatch(const TableBatch&) = delete;
  TableBatch& operator=(const TableBatch&) = delete;
  void release() {
    if (array.release != nullptr) array.release(&array);
    array.release = nullptr;
  }

  ArrowArray array{};        // a struct of the columns
  int64_t stored_bytes = 0;  // of the file, up to its end, roughly: for progress
};

// The rows of a table in order. Errors are Error(bad_input) that name the file, or Error(io).
class TableReader {
 public:
  virtual ~TableReader() = default;
  virtual const ArrowSchema& schema() const = 0;  // a struct of the columns
  virtual int64_t first_row() const = 0;          // of the first batch
  virtual bool next(TableBatch& batch) = 0;       // false at the end
};

// Batches may begin before `row`, because they begin where the file can be entered.
std::unique_ptr<TableReader> open_table(const std::string& path, TableFormat format, int64_t row);

}  // namespace megatrain
