#include "megatrain/device/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"

namespace megatrain {

void Ledger::add(const std::string& tag, int64_t bytes) {
  ensure(bytes >= 0, "an allocation has a size");
  const std::lock_guard lock(mutex_);
  if (bytes > 0) held_[tag] += bytes;
  bytes_ += bytes;
  peak_ = std::max(peak_, bytes_);
  ++allocations_;
}

void Ledger::remove(const std::string& tag, int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto entry = held_.find(tag);
  ensure(entry != held_.end() && bytes > 0 && bytes <= entry->second, "only bytes that a tag holds are given back");
  entry->second -= bytes;
  bytes_ -= bytes;
  if (entry->second == 0) held_.erase(entry);
}

int64_t Ledger::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

int64_t Ledger::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

int64_t Ledger::allocations() const {
  const std::lock_guard lock(mutex_);
  return allocations_;
}

std::map<std::string, int64_t> Ledger::by_tag() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

std::string Ledger::table() const {
  const std::map<std::string, int64_t> held = by_tag();
  std::vector<std::pair<std::string, int64_t>> rows(held.begin(), held.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  size_t width = 0;
  for (const auto& [tag, bytes] : rows) width = std::max(width, tag.size());
  std::string text;
  for (const auto& [tag, bytes] : rows) text += fmt::format("{:<{}}  {:>9}\n", tag, width, format_bytes(bytes));
  return text;
}

}  // namespace megatrain
