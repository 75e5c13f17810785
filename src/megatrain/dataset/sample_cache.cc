#include "megatrain/dataset/sample_cache.h"

#include <chrono>
#include <filesystem>
#include <string_view>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/dataset/sample_writer.h"
#include "megatrain/io/file.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial", kDamaged = ".damaged";
constexpr size_t kNameDigits = 32;
constexpr auto kKept = std::chrono::hours(7 * 24);

bool is_store(const std::string& name, std::string_view ending) {
  return name.size() == kNameDigits + ending.size() && name.ends_with(ending) &&
         name.find_first_not_of("0123456789abcdef") == kNameDigits;
}

bool is_stale(const std::string& partial) {
  const std::string journal = journal_path(partial);
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(journal, error);
  if (error || bytes == 0) return true;
  const fs::file_time_type written = fs::last_write_time(journal, error);
  return !error && fs::file_time_type::clock::now() - written > kKept;
}

}  // namespace

void remove_leftovers(const std::string& cache_directory) {
  std::error_code error;
  std::vector<fs::path> partials, damaged;
  for (const fs::directory_entry& entry : fs::directory_iterator(cache_directory, error)) {
    const std::string name = entry.path().filename().string();
    if (is_store(name, kPartial)) partials.push_back(entry.path());
    if (is_store(name, kDamaged)) damaged.push_back(entry.path());
  }
  for (const fs::path& path : damaged) fs::remove_all(path, error);
  for (const fs::path& path : partials) {
    const std::string partial = path.string();
    try {
      DirectoryLock lock(partial);
      if (lock.try_lock() && lock.is_at(partial) && is_stale(partial)) fs::remove_all(path, error);
    } catch (const Error&) {  // it cannot be opened, and only costs space
    }
  }
}

void remove_damaged_store(const std::string& store) {
  const std::string aside = store + std::string(kDamaged);
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  rename_path(store, aside);  // in one step, so that no process opens a part of it
  fs::remove_all(aside, ignored);
}

}  // namespace megatrain
