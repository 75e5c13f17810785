// Writes rows of an Arrow array as JSON objects, as a JSON Lines file of the same table has them.
//
// Null is null; integers, floats (never-ending ones and NaN are null) and booleans are themselves; text is text, and
// bytes are taken for text. Decimals, dates and times are texts, which no form reads as numbers. Lists are arrays,
// structs and maps objects, and a dictionary's values stand in its place. A cell of another type becomes an object that
// names the type, which no form takes for text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/tables/arrow_abi.h"

namespace megatrain {

class JsonCells {
 public:
  // `schema` is a struct: the columns. Error(bad_input), for behind "FILE ", if its types are malformed or too deep.
  explicit JsonCells(const ArrowSchema& schema);
  ~JsonCells();
  JsonCells(JsonCells&&) noexcept;
  JsonCells& operator=(JsonCells&&) noexcept;

  // Rows are now those of `batch`, which has the schema and lives until the next call.
  void bind(const ArrowArray& batch);
  // Appends a row. False if it grows beyond `most_bytes`; what was appended is then incomplete. Error(bad_input) for
  // values that point outside of the array.
  bool append_row(std::string& out, int64_t row, int64_t most_bytes) const;

  struct Node;

 private:
  std::unique_ptr<Node> root_;
};

}  // namespace megatrain
