#include <algorithm>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/bench/measure.h"
#include "megatrain/host/memory.h"
#include "megatrain/host/thread_team.h"
#include "megatrain/io/scratch_file.h"

namespace megatrain {

namespace {

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

}  // namespace

MachineProfile measure_machine(Machine& machine, int64_t threads, const std::string& directory) {
  Device& device = *machine.device;
  const bool gpu = device.kind() == DeviceKind::cuda;
  const double compute_s = gpu ? 11 : 4;  // at most
  constexpr double kDiskSeconds = 1.5;    // at most, in each direction
  MachineProfile profile{.updates_on_device = gpu, .name = device.name(), .measured_on = today()};

  log_info("measuring the link and host memory");
  {
    const int64_t link_bytes = std::min<int64_t>(gpu ? kGiB : 64 * kMiB, host_memory_available() / 16);
    const int64_t piece = std::min(64 * kMiB, link_bytes);
    LinkTimer link(device, link_bytes);
    profile.h2d_bytes_per_s = link.rate(piece, true, false);
    profile.d2h_bytes_per_s = link.rate(piece, false, true);
    // other work on the machine may have slowed down one of the three measurements
    const double one = std::max(profile.h2d_bytes_per_s, profile.d2h_bytes_per_s);
    profile.link_both_bytes_per_s =
        std::clamp(link.rate(piece, true, true), one, profile.h2d_bytes_per_s + profile.d2h_bytes_per_s);
    const int64_t dram_bytes = std::min<int64_t>(gpu ? 4 * kGiB : 512 * kMiB, host_memory_available() / 8);
    const DramRates dram = measure_dram(dram_bytes, threads, gpu ? &link : nullptr);
    profile.dram_bytes_per_s = dram.adamw_bytes_per_s;
    profile.int8_updates_per_s = dram.int8_updates_per_s;
    // measured later, when the machine may have been quieter: it cannot really be faster than without copies
    profile.dram_beside_dma_bytes_per_s = std::min(dram.beside_dma_bytes_per_s, dram.adamw_bytes_per_s);
  }
  log_info(fmt::format("measuring the disk of {}", directory));
  const DiskRates disk = measure_disk(directory, std::min(4 * kGiB, free_scratch_bytes(directory) / 4), kDiskSeconds);
  profile.disk_read_bytes_per_s = disk.read_bytes_per_s;
  profile.disk_write_bytes_per_s = disk.write_bytes_per_s;
  profile.disk_both_bytes_per_s = disk.both_bytes_per_s;
  log_info("measuring matmuls and attention");
  const ComputeRates compute = measure_compute(machine, compute_s);
  profile.flops_per_s = compute.layer_flops_per_s;
  profile.hbm_bytes_per_s = compute.small_bytes_per_s;
  profile.matmul_rates = compute.matmuls;
  profile.expert_rates = compute.experts;
  profile.attention_rates = compute.attention;

  profile.shared_cores = gpu ? 0 : team_size(threads);
  profile.hbm_bytes = device.memory_total();
  profile.host_bytes = host_memory_total();
  profile.disk_bytes = free_scratch_bytes(directory);
  check_profile(profile, "the measured profile");
  return profile;
}

}  // namespace megatrain
