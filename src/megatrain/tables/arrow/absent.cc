// A build without Apache Arrow.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/tables/arrow/tables.h"

namespace megatrain {

bool has_arrow() { return false; }

std::unique_ptr<TableReader> open_table(const std::string& path, TableFormat /*format*/, int64_t /*row*/) {
  fail_input(
      fmt::format("{} needs Apache Arrow to be read, and this megatrain was built without it; in a clone run "
                  "tools/install --arrow, or convert the file to JSON Lines.",
                  path));
}

}  // namespace megatrain
