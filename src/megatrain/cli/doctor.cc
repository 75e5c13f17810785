#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/bench/measure.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/config/config.h"
#include "megatrain/host/thread_team.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/scratch_file.h"
#include "megatrain/machine/machine_checks.h"
#include "megatrain/machine/profile_cache.h"

namespace megatrain {

namespace {

std::string rates_text(const RateTable& table, const char* unit) {
  std::string text;
  for (const RatePoint& point : table)
    text += fmt::format("{}{:.3g} at {:.3g} {}", text.empty() ? "" : ", ", point.per_s * 1e-12, point.size, unit);
  return text;
}

std::string profile_text(const MachineProfile& p) {
  const auto gb = [](double bytes_per_s) { return fmt::format("{:.1f} GB/s", bytes_per_s * 1e-9); };
  std::string text = fmt::format("profile of {}\n", p.title());
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<24}{}\n", name, value);
  };
  line("link to the device", gb(p.h2d_bytes_per_s));
  line("link to the host", gb(p.d2h_bytes_per_s));
  line("link both ways at once", gb(p.link_both_bytes_per_s));
  line("host memory, update", gb(p.dram_bytes_per_s));
  if (p.dram_beside_dma_bytes_per_s > 0) line("the same beside copies", gb(p.dram_beside_dma_bytes_per_s));
  line("the same, int8 moments", format_count(std::llround(p.int8_updates_per_s)) + " parameters/s");
  line("disk read, write", gb(p.disk_read_bytes_per_s) + ", " + gb(p.disk_write_bytes_per_s));
  line("disk both at once", gb(p.disk_both_bytes_per_s));
  line("layers", fmt::format("{:.3g} TFLOP/s", p.flops_per_s * 1e-12));
  line("matmuls, TFLOP/s", rates_text(p.matmul_rates, "flops"));
  line("experts, TFLOP/s", rates_text(p.expert_rates, "flops of one"));
  line("attention, TFLOP/s", rates_text(p.attention_rates, "tokens"));
  line("small ops", gb(p.hbm_bytes_per_s));
  line("memory", fmt::format("device {}, host {}, disk {} free", format_bytes(p.hbm_bytes), format_bytes(p.host_bytes),
                             format_bytes(p.disk_bytes)));
  return text;
}

std::string check_text(const MachineCheck& check) {
  if (check.ok) return fmt::format("ok       {}: {}\n", check.name, check.found);
  return fmt::format("WARNING  {}: {}; expected {}\n         fix: {}\n", check.name, check.found, check.expected,
                     check.fix);
}

}  // namespace

namespace {

// Fails before the measurement for reasons that would otherwise fail after it.
void check_places(const std::string& directory, const std::optional<std::string>& out) {
  constexpr int64_t kLeast = 256 * kMiB;
  check_scratch_place({.directory = directory, .allow_network = true, .directory_key = "--dir"}, 0);
  if (const int64_t there = free_scratch_bytes(directory); there < kLeast)
    fail(ExitCode::cannot_fit, fmt::format("--dir is {}, where {} are free; doctor writes {} there, so give another",
                                           directory, format_bytes(there), format_bytes(kLeast)));
  if (out && ::access(parent_directory(*out).c_str(), W_OK) != 0)
    fail_io(fmt::format("--out is {}, and nothing can be written there: {}", *out, std::strerror(errno)));
}

MachineProfile measure_and_keep(Machine& machine, int64_t threads, const std::string& directory,
                                const std::optional<std::string>& out, const ProfileCache& cache) {
  check_places(directory, out);
  const double start = now_s();
  const MachineProfile profile = measure_machine(machine, threads, directory);
  const double seconds = now_s() - start;
  try {
    if (out) {
      write_text_file(*out, json_text(profile_to_json(profile), 1) + "\n");
    } else {
      cache.save(profile);
    }
    log_info(fmt::format("measured in {:.1f} s; kept in {}", seconds, out.value_or(cache.path())));
  } catch (const Error& error) {
    if (out) throw;
    log_warn(fmt::format("measured in {:.1f} s, and not kept: {}", seconds, error.what()));
  }
  return profile;
}

}  // namespace

int verb_doctor(const Arguments& arguments) {
  arguments.none();
  const TrainConfig config =
      parse_config("", "doctor", arguments.overrides(), {.model = false, .data = false, .steps = false});
  if (arguments.flag("--checks") && arguments.option("--out"))
    fail_config("--checks measures nothing that --out could keep; leave one of them out");
  CheckedMachine checked{.directory = arguments.option("--dir").value_or("."), .cpus = usable_cpus()};
  Machine machine = open_machine(config.device, config.threads);
  if (machine.device->kind() == DeviceKind::cuda) {
    checked.gpu = machine.device->name();
  } else if (const auto gpu = make_cuda_device(&checked.why_no_gpu)) {
    checked.gpu = gpu->name();
  }
  const ProfileCache cache(*machine.device);

  std::optional<MachineProfile> profile;
  if (arguments.flag("--checks")) {
    profile = cache.load();
  } else {
    profile = measure_and_keep(machine, config.threads, checked.directory, arguments.option("--out"), cache);
  }
  // After the copies, so that the PCIe link has left its idle state.
  const std::vector<MachineCheck> checks = machine_checks(checked);

  if (arguments.json()) {
    nlohmann::json list = nlohmann::json::array();
    for (const MachineCheck& check : checks)
      list.push_back({{"name", check.name},
                      {"ok", check.ok},
                      {"found", check.found},
                      {"expected", check.expected},
                      {"fix", check.ok ? nlohmann::json() : nlohmann::json(check.fix)}});
    fmt::print("{}\n", json_text(nlohmann::json{{"checks", list},
                                                {"profile", profile ? profile_to_json(*profile) : nlohmann::json()}},
                                 1));
    return 0;
  }
  for (const MachineCheck& check : checks) fmt::print("{}", check_text(check));
  fmt::print("{}", profile ? profile_text(*profile) : "no measured profile of this machine: run 'megatrain doctor'\n");
  return 0;
}

}  // namespace megatrain
