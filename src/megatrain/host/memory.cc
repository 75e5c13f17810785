#include "megatrain/host/memory.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include <fmt/format.h>

#include "megatrain/base/units.h"
#include "megatrain/host/cgroup.h"

namespace megatrain {

namespace {

// A field of the kernel's "Name:   12345 kB" tables.
int64_t read_kilobytes(const char* file, const std::string& field) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1)) * kKiB;
  }
  return 0;
}

}  // namespace

int64_t host_memory_total() {
  const int64_t machine = read_kilobytes("/proc/meminfo", "MemTotal");
  const auto group = cgroup_memory();
  return group ? std::min(machine, group->limit_bytes) : machine;
}

int64_t host_memory_available() {
  const int64_t machine = read_kilobytes("/proc/meminfo", "MemAvailable");
  const auto group = cgroup_memory();
  return group ? std::min(machine, group->available_bytes) : machine;
}

int64_t host_memory_used() { return read_kilobytes("/proc/self/status", "VmRSS"); }
int64_t host_memory_peak() { return read_kilobytes("/proc/self/status", "VmHWM"); }

int64_t last_level_cache_bytes() {
  std::map<std::string, int64_t> caches;  // by the CPUs that share a cache
  for (int cpu = 0;; ++cpu) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/cache/index3/", cpu);
    std::ifstream sizes(folder + "size"), sharers(folder + "shared_cpu_list");
    int64_t kilobytes = 0;
    std::string cpus;
    if (!(sizes >> kilobytes) || !(sharers >> cpus)) break;
    caches[cpus] = kilobytes * kKiB;
  }
  int64_t bytes = 0;
  for (const auto& [cpus, size] : caches) bytes += size;
  return bytes;
}

}  // namespace megatrain
