#include "megatrain/advice/machine_to_plan.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/scratch_file.h"
#include "megatrain/machine/machines.h"
#include "megatrain/machine/profile_cache.h"
#include "megatrain/train/planned_machine.h"

namespace megatrain {

namespace {

std::optional<int64_t> size_option(const char* name, const std::optional<std::string>& text) {
  if (!text) return {};
  constexpr int64_t kLeast = 64 * kMiB;  // no machine has less: the unit is missing
  int64_t bytes = 0;
  try {
    bytes = parse_bytes(*text);
  } catch (const Error& error) {
    fail_config(fmt::format("{}: {}", name, error.what()));
  }
  if (bytes > 0 && bytes < kLeast && std::ranges::all_of(*text, [](unsigned char c) { return std::isdigit(c) != 0; }))
    fail_config(fmt::format("{} {} is {}; did you mean {}GiB?", name, *text, format_bytes(bytes), *text));
  if (bytes > 0) return bytes;
  fail_config(fmt::format("{} is '{}'; expected a size above 0, such as 64GiB", name, *text));
}

// The machine has this much disk, and state may spill to it.
void use_disk(PlannedMachine& planned, int64_t bytes) {
  planned.limits.disk_bytes = bytes;
  planned.budgets.disk_bytes = disk_budget(bytes);
}

PlannedMachine named_site(const std::string& name, const TrainConfig& config, std::optional<int64_t> ram,
                          std::optional<int64_t> disk) {
  MachineProfile machine = name.ends_with(".json") ? read_profile(name) : named_machine(name);
  if (config.device == "cpu" && machine.shared_cores == 0)
    fail_config(fmt::format("--machine={} has a GPU, but device is cpu; leave one of them out", name));
  machine.host_bytes = ram.value_or(machine.host_bytes);
  if (!disk && !config.memory.nvme_path.empty() && machine.disk_bytes == 0)
    fail_config(fmt::format(
        "memory.nvme_path is given, but --machine={} does not say how much disk it has; say so with --disk", name));
  PlannedMachine planned = machine_from_profile(machine);
  if (disk) use_disk(planned, *disk);
  return planned;
}

PlannedMachine this_site(const Machine& machine, const TrainConfig& config, std::optional<int64_t> ram,
                         std::optional<int64_t> disk) {
  PlannedMachine planned = this_machine(machine, config.threads);
  if (ram) {
    planned.limits.host_bytes = *ram;
    planned.budgets.host_bytes = host_budget(*ram);
    if (!planned.gpu) {  // the CPU device uses the same memory
      planned.limits.gpu_bytes = *ram;
      planned.budgets.gpu_bytes = planned.budgets.host_bytes /= 2;
    }
  }
  const ScratchPlace place = disk_settings(config).place;
  if (!place.directory.empty()) {
    check_scratch_place(place, 0);
    use_disk(planned, std::max<int64_t>(free_scratch_bytes(place.directory), 1));
  }
  if (disk) use_disk(planned, *disk);
  return planned;
}

}  // namespace

MachineToPlan machine_to_plan(const MachineChoice& choice, const TrainConfig& config) {
  const auto ram = size_option("--ram", choice.ram), disk = size_option("--disk", choice.disk);
  MachineToPlan planned;
  if (choice.name) {
    planned.planned = named_site(*choice.name, config, ram, disk);
  } else {
    planned.machine = open_machine(config.device, config.threads);
    planned.planned = this_site(planned.machine, config, ram, disk);
  }
  return planned;
}

}  // namespace megatrain
