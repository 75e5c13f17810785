#include "megatrain/machine/machine_checks.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "megatrain/base/units.h"
#include "megatrain/host/cgroup.h"
#include "megatrain/io/file_system.h"
#include "megatrain/io/free_space.h"
#include "megatrain/machine/profile_cache.h"

namespace megatrain {

namespace fs = std::filesystem;

namespace {

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// The number that a text begins with: "16.0 GT/s PCIe", "16".
double number_of(const std::string& text) {
  double value = 0;
  std::istringstream(text) >> value;
  return value;
}

MachineCheck passed(std::string name, std::string found, std::string expected) {
  return {.name = std::move(name), .found = std::move(found), .expected = std::move(expected), .fix = ""};
}

// NVIDIA's display and 3D controllers, ordered by address.
std::vector<fs::path> gpus_of(const std::string& root) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root + "/sys/bus/pci/devices", none)) {
    if (first_line(entry.path() / "vendor") == "0x10de" && first_line(entry.path() / "class").rfind("0x03", 0) == 0)
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Names what is missing first: a card, a driver, or a build that uses them.
std::string gpu_fix(const CheckedMachine& m) {
  const auto says = [&](const char* part) { return m.why_no_gpu.find(part) != std::string::npos; };
  if (says("update the driver")) return "install a newer NVIDIA driver; in a container it is the host's";
  if (says("has no code for")) return "build on this machine, or with -DCMAKE_CUDA_ARCHITECTURES of its GPU";
  if (says("no CUDA support") && !gpus_of(m.root).empty())
    return "install the CUDA toolkit and cuDNN, and rebuild: 'tools/build cuda' (README.md, Requirements)";
  if (gpus_of(m.root).empty())
    return "nothing if there is no NVIDIA card: everything works on the CPU; in a container run with --gpus all";
  return "install the NVIDIA driver; in a container run with --gpus all";
}

MachineCheck gpu_check(const CheckedMachine& m) {
  const char *name = "gpu", *expected = "a CUDA device of Ampere or later (compute capability 8.0) and its driver";
  if (m.gpu.empty()) return {name, false, m.why_no_gpu, expected, gpu_fix(m)};
  const std::string driver = driver_version(m.root);
  return passed(name, m.gpu + (driver.empty() ? "" : ", driver " + driver), expected);
}

// Registered memory is locked. A process with CAP_IPC_LOCK has no limit.
MachineCheck memlock_check(const CheckedMachine& m) {
  constexpr uint64_t kIpcLock = uint64_t{1} << 14;
  const char *name = "memlock", *expected = "unlimited";
  std::ifstream status(m.root + "/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("CapEff:", 0) == 0 && (std::stoull(line.substr(7), nullptr, 16) & kIpcLock) != 0)
      return passed(name, "unlimited (CAP_IPC_LOCK)", expected);
  }
  std::ifstream limits(m.root + "/proc/self/limits");
  for (std::string line; std::getline(limits, line);) {
    const std::string title = "Max locked memory";
    if (line.rfind(title, 0) != 0) continue;
    std::string soft;
    std::istringstream(line.substr(title.size())) >> soft;
    if (soft == "unlimited") return passed(name, soft, expected);
    return {name, false, format_bytes(static_cast<int64_t>(number_of(soft))), expected,
            "'ulimit -l unlimited' before starting, 'docker run --ulimit memlock=-1', or '* - memlock unlimited' in "
            "/etc/security/limits.conf"};
  }
  return passed(name, "not reported by this kernel", expected);
}

int64_t memory_total(const CheckedMachine& m) {
  std::ifstream meminfo(m.root + "/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    if (line.rfind("MemTotal:", 0) == 0) return static_cast<int64_t>(number_of(line.substr(9))) * kKiB;
  }
  return 0;
}

MachineCheck cgroup_check(const CheckedMachine& m) {
  const char *name = "cgroup memory", *expected = "no limit below the machine's memory";
  const int64_t total = memory_total(m);
  const auto group = cgroup_memory(m.root.empty() ? "/" : m.root);
  if (!group) return passed(name, "no limit", expected);
  const std::string found = fmt::format("{} of {}", format_bytes(group->limit_bytes), format_bytes(total));
  if (group->limit_bytes >= total - total / 16) return passed(name, found, expected);
  return {name, false, found, expected,
          "plans stay below the limit; raise it with 'docker run --memory', the job's memory request, or "
          "systemd's MemoryMax to use the rest"};
}

MachineCheck huge_pages_check(const CheckedMachine& m) {
  const char *name = "huge pages", *expected = "always or madvise";
  const std::string line = first_line(m.root + "/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = line.find('['), close = line.find(']');
  const std::string chosen =
      open == std::string::npos || close == std::string::npos ? "off" : line.substr(open + 1, close - open - 1);
  if (chosen == "always" || chosen == "madvise") return passed(name, chosen, expected);
  return {name, false, chosen, expected,
          "'echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled': registering host memory takes longer "
          "and the update is slower without"};
}

struct PcieLink {
  double width = 0, gt_s = 0;
  std::string text() const { return fmt::format("x{:g} at {:g} GT/s", width, gt_s); }
};

PcieLink link_of(const fs::path& device, const char* which) {
  return {.width = number_of(first_line(device / fmt::format("{}_link_width", which))),
          .gt_s = number_of(first_line(device / fmt::format("{}_link_speed", which)))};
}

// The speed drops while a GPU is idle, so it is only meaningful right after copies; the width does not change.
std::optional<MachineCheck> pcie_check(const fs::path& gpu) {
  const PcieLink now = link_of(gpu, "current"), card = link_of(gpu, "max");
  if (now.width == 0 || card.width == 0) return {};
  std::error_code none;
  const fs::path real = fs::canonical(gpu, none);
  const PcieLink slot = none ? PcieLink{} : link_of(real.parent_path(), "max");
  const PcieLink best{.width = slot.width > 0 ? std::min(card.width, slot.width) : card.width,
                      .gt_s = slot.gt_s > 0 ? std::min(card.gt_s, slot.gt_s) : card.gt_s};
  const std::string name = "pcie " + gpu.filename().string();
  if (now.width >= best.width && now.gt_s >= best.gt_s) return passed(name, now.text(), best.text());
  return MachineCheck{name, false, now.text(), best.text(),
                      now.width < best.width ? "reseat the card, use a slot with all lanes, or undo a bifurcation in "
                                               "the BIOS: copies are slower by the missing lanes"
                                             : "an idle link is slow, so check again during a run; otherwise set the "
                                               "slot's speed in the BIOS, or replace the riser"};
}

// Parses a list such as "0-15,32-47".
std::vector<int> cpus_in(const std::string& list) {
  std::vector<int> cpus;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    const size_t dash = range.find('-');
    const int first = static_cast<int>(number_of(range));
    const int last = dash == std::string::npos ? first : static_cast<int>(number_of(range.substr(dash + 1)));
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::optional<MachineCheck> numa_check(const fs::path& gpu, const CheckedMachine& m) {
  const std::string node = first_line(gpu / "numa_node"), list = first_line(gpu / "local_cpulist");
  if (node.empty() || node == "-1" || list.empty()) return {};
  const std::vector<int> local = cpus_in(list);
  const auto near = std::count_if(m.cpus.begin(), m.cpus.end(),
                                  [&](int cpu) { return std::find(local.begin(), local.end(), cpu) != local.end(); });
  const std::string name = "numa " + gpu.filename().string();
  const std::string expected = fmt::format("CPUs of the GPU's node {} ({})", node, list);
  const std::string found = fmt::format("{} of this process's {} CPUs are there", near, m.cpus.size());
  if (near > 0) return passed(name, found, expected);
  return MachineCheck{name, false, found, expected,
                      fmt::format("'numactl --cpunodebind={0} --membind={0} megatrain …'", node)};
}

MachineCheck host_memory_check(const CheckedMachine& m) {
  constexpr int64_t kStateBytes = 12;  // per parameter, with fp32 master and moments
  const int64_t total = memory_total(m);
  return passed(
      "host memory",
      fmt::format("{}, the state of {} parameters in fp32", format_bytes(total), format_count(total / kStateBytes)),
      "12 bytes a parameter with fp32 state, 4 with the smallest (state.moments, state.master)");
}

// The plan knows what a run needs; this only finds disks that are too full for anything.
MachineCheck disk_check(const CheckedMachine& m) {
  constexpr int64_t kLeast = kGiB;
  const char *name = "disk",
             *expected = "12 bytes a parameter for every checkpoint that stays and one more, and 2 for the model";
  const auto free = free_space(m.directory);
  if (!free) return passed(name, "not reported by this file system", expected);
  const std::string found = fmt::format("{} free in {}", format_bytes(free->bytes), m.directory);
  if (free->bytes >= kLeast) return passed(name, found, expected);
  return {name, false, found, expected, "free some space, or choose a run_dir on another disk"};
}

MachineCheck scratch_check(const CheckedMachine& m) {
  const char *name = "scratch", *expected = "a disk of this machine";
  std::error_code none;
  if (!fs::is_directory(m.directory, none))
    return {name, false, m.directory + " is not a directory", expected, "name an existing one with --dir"};
  const std::string type = file_system_of(m.directory);
  const std::string found = fmt::format("{} is on {}", m.directory, type.empty() ? "an unknown file system" : type);
  if (is_network_file_system(type) || type == "tmpfs")
    return {name, false, found + (type == "tmpfs" ? ", which is memory" : ", a network file system"), expected,
            "choose a directory on an NVMe drive of this machine with --dir, and for runs with memory.nvme_path"};
  return passed(name, found, expected);
}

}  // namespace

std::vector<MachineCheck> machine_checks(const CheckedMachine& m) {
  std::vector<MachineCheck> checks = {gpu_check(m), host_memory_check(m), memlock_check(m), cgroup_check(m),
                                      huge_pages_check(m)};
  for (const fs::path& gpu : gpus_of(m.root)) {
    if (const auto check = pcie_check(gpu)) checks.push_back(*check);
    if (const auto check = numa_check(gpu, m)) checks.push_back(*check);
  }
  checks.push_back(disk_check(m));
  checks.push_back(scratch_check(m));
  return checks;
}

}  // namespace megatrain
