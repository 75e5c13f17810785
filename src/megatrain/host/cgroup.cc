#include "megatrain/host/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>

namespace megatrain {

namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// Returns nothing, meaning no limit, for "max" and anything else that is not a number.
std::optional<int64_t> number_in(const std::string& path) {
  const std::string line = first_line(path);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc() || end == line.data()) return {};
  return value;
}

// Size of the file pages in the page cache, active or not: the kernel drops both before it kills a process. From the
// lines "name 12345" of memory.stat.
int64_t droppable_bytes(const std::string& path, const std::string& prefix) {
  std::ifstream in(path);
  std::string key;
  int64_t bytes = 0;
  for (int64_t value = 0; in >> key >> value;) {
    if (key == prefix + "inactive_file" || key == prefix + "active_file") bytes += value;
  }
  return bytes;
}

// File and field names, which differ between cgroup versions.
struct Files {
  const char *limit, *used;
  const char* prefix;  // of memory.stat's lines that include child groups
};
constexpr Files kVersion2 = {"memory.max", "memory.current", ""};
constexpr Files kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_"};
constexpr int64_t kNoLimit = int64_t{1} << 60;  // version 1 writes its largest number instead of "max"

// Updates `best` with the tightest limit of the group and its parents, up to `mount`.
void take_tightest(const std::string& mount, std::string group, const Files& files, std::optional<CgroupMemory>& best) {
  for (;;) {
    const std::string folder = mount + group + "/";
    const std::optional<int64_t> limit = number_in(folder + files.limit);
    if (limit && *limit < kNoLimit) {
      const int64_t used = number_in(folder + files.used).value_or(0);
      const int64_t droppable = droppable_bytes(folder + "memory.stat", files.prefix);
      const int64_t available = *limit - std::max<int64_t>(used - droppable, 0);
      if (!best) best = {.limit_bytes = *limit, .available_bytes = available};
      best->limit_bytes = std::min(best->limit_bytes, *limit);
      best->available_bytes = std::max<int64_t>(std::min(best->available_bytes, available), 0);
    }
    if (group.empty()) return;
    group.erase(group.rfind('/'));
  }
}

}  // namespace

std::optional<CgroupMemory> cgroup_memory(const std::string& root) {
  std::optional<CgroupMemory> best;
  std::ifstream groups(root + "/proc/self/cgroup");  // "0::/path", or in version 1 "7:memory:/path"
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string group = line.substr(second + 1);
    if (group == "/" || group.find("..") != std::string::npos) group.clear();  // a container sees itself as the root
    if (controllers.empty()) take_tightest(root + "/sys/fs/cgroup", group, kVersion2, best);
    if (controllers == "memory") take_tightest(root + "/sys/fs/cgroup/memory", group, kVersion1, best);
  }
  return best;
}

}  // namespace megatrain
