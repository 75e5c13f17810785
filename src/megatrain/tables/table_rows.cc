#include "megatrain/tables/table_rows.h"

#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

// Runs code whose messages follow the file's name.
template <class Deed>
auto naming(const std::string& path, const Deed& deed) {
  try {
    return deed();
  } catch (const Error& error) {
    fail(error.code(), fmt::format("{} {}", path, error.what()));
  }
}

}  // namespace

TableRows::TableRows(const std::string& path, TableFormat format, int64_t row)
    : path_(path), table_(open_table(path, format, row)), row_(row) {
  in_batch_ = row - table_->first_row();
  naming(path_, [&] { cells_.emplace(table_->schema()); });
  decode_next();
  take_next();
}

void TableRows::decode_next() {
  decoding_ = std::async([this] { return table_->next(*next_); });
}

void TableRows::take_next() {
  ended_ = !decoding_.get();
  if (ended_) return;
  std::swap(batch_, next_);
  naming(path_, [&] { cells_->bind(batch_->array); });
  decode_next();
}

bool TableRows::at_end() {
  while (!ended_ && in_batch_ >= batch_->array.length) {
    in_batch_ -= batch_->array.length;
    take_next();
  }
  return ended_;
}

bool TableRows::append_next(std::string& out, int64_t most_bytes) {
  ensure(!at_end(), "a row is left");
  const size_t held = out.size();
  const bool fits = naming(path_, [&] { return cells_->append_row(out, in_batch_, most_bytes); });
  if (!fits) out.resize(held);
  ++in_batch_;
  ++row_;
  return fits;
}

}  // namespace megatrain
