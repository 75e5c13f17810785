#include "megatrain/dataset/content_hash.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/base/work_progress.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/xxh3.h"

namespace megatrain {
namespace {

constexpr int64_t kReadBytes = 4 * kMiB;
// A file that changed more recently than this may change again without a new time stamp.
constexpr int64_t kSettledNs = 2'000'000'000;

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

nlohmann::json to_json(const std::string& path, const ContentHash& content) {
  const FileStamp& stamp = content.stamp;
  return {path, stamp.bytes, stamp.modified_ns, stamp.changed_ns, stamp.inode, stamp.device, content.hash};
}

// If the remembered hash cannot be read or written, it only costs time.
std::optional<std::string> recall(const std::string& memory, const std::string& path, const FileStamp& stamp) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(memory, error)) return std::nullopt;
  try {
    const nlohmann::json json = nlohmann::json::parse(read_text_file(memory, kMiB), nullptr, false);
    if (!json.is_array() || json.empty() || !json.back().is_string()) return std::nullopt;
    const std::string hash = json.back().get<std::string>();
    if (json != to_json(path, {.hash = hash, .stamp = stamp})) return std::nullopt;
    return hash;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void remember(const std::string& memory, const std::string& path, const ContentHash& content) {
  try {
    write_text_file(memory, json_text(to_json(path, content)));
  } catch (const Error&) {
  }
}

}  // namespace

FileStamp stamp_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    fail_input(fmt::format("cannot examine {}: {}; check the path.", path, std::strerror(errno)));
  }
  return {.bytes = status.st_size,
          .modified_ns = nanoseconds(status.st_mtim),
          .changed_ns = nanoseconds(status.st_ctim),
          .inode = status.st_ino,
          .device = status.st_dev};
}

std::optional<ContentHash> content_hash(const std::string& path, const std::string& memory_directory,
                                        const volatile std::sig_atomic_t* stop) {
  const std::string whole = std::filesystem::absolute(path).lexically_normal().string();
  const std::string memory = fmt::format("{}/{}.json", memory_directory, xxh3_128(whole.data(), whole.size()));
  ContentHash content{.stamp = stamp_of(path)};
  if (auto hash = recall(memory, whole, content.stamp)) {
    content.hash = std::move(*hash);
    return content;
  }
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const File file = File::open_to_read(path);
  const int64_t bytes = file.bytes();
  std::vector<char> buffer(static_cast<size_t>(std::clamp<int64_t>(bytes, 1, kReadBytes)));
  Xxh3 hash;
  WorkProgress progress("reading " + path, bytes, log_is_terminal() ? 1 : 10, {.ends_at_stop = true});
  for (int64_t at = 0; at < bytes;) {
    if (stop != nullptr && *stop != 0) return std::nullopt;
    const int64_t count = std::min<int64_t>(bytes - at, static_cast<int64_t>(buffer.size()));
    file.read_at(at, buffer.data(), count);
    hash.update(buffer.data(), static_cast<size_t>(count));
    at += count;
    progress.add(count);
  }
  content.hash = hash.digest();
  const int64_t last_change = std::max(content.stamp.modified_ns, content.stamp.changed_ns);
  if (last_change + kSettledNs < nanoseconds(now)) remember(memory, whole, content);
  return content;
}

}  // namespace megatrain
