// The machine as the estimate sees it: how fast it computes and moves bytes, and how many bytes each tier has.
// Estimates are only as good as these numbers. They are measured by `megatrain doctor` or come from data sheets
// (machine/machines.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "megatrain/tensor/state_format.h"

namespace megatrain {

// A rate that depends on size. For a GEMM the size is its flops, for the GEMMs of experts the flops of one expert, for
// attention the sequence length.
struct RatePoint {
  double size = 0;
  double per_s = 0;
  bool operator==(const RatePoint&) const = default;
};
using RateTable = std::vector<RatePoint>;  // ascending sizes; empty: not measured

// Interpolates over the logarithm of the size; beyond the ends the rate is constant.
double rate_at(const RateTable& table, double size);

// The defaults are those of one H200 on PCIe 5 with its host, as reached in complete training steps.
struct MachineProfile {
  double flops_per_s = 640e12;  // for complete layers, small kernels included
  double hbm_bytes_per_s = 3.2e12;
  double h2d_bytes_per_s = 50e9;
  double d2h_bytes_per_s = 50e9;
  double dram_bytes_per_s = 130e9;  // with the optimizer's mix of reads and writes, while the link is idle
  bool updates_on_device = true;    // false: the device is the host's own CPU, so updating there gains nothing

  double link_both_bytes_per_s = 0;        // both directions at once, summed; 0: they are independent
  double dram_beside_dma_bytes_per_s = 0;  // the same mix while the link is busy in both directions; 0: as when idle
  double disk_read_bytes_per_s = 2.7e9;
  double disk_write_bytes_per_s = 1.5e9;
  double disk_both_bytes_per_s = 2.6e9;  // both directions at once, summed; 0: they are independent
  // Parameters per second that the host's cores update with int8 moments; 0: limited by memory only.
  double int8_updates_per_s = 4e9;
  int64_t shared_cores = 0;  // number of cores that the lanes share; 0: the device computes and copies by itself

  RateTable matmul_rates;     // flops/s by the flops of one GEMM
  RateTable expert_rates;     // flops/s of a layer's expert GEMMs by the flops of one of them
  RateTable attention_rates;  // flops/s by sequence length

  double attention_flops_per_s = 0;   // for the attention of one run (train/planned_machine.h); 0: flops_per_s
  double recurrence_flops_per_s = 0;  // for delta rules and Mamba 2 (train/planned_machine.h); 0: flops_per_s

  int64_t hbm_bytes = 0;  // sizes of the tiers; 0: unknown
  int64_t host_bytes = 0;
  int64_t disk_bytes = 0;

  std::string name = "h200";
  std::string measured_on;  // a date; empty: from data sheets

  bool operator==(const MachineProfile&) const = default;
  bool measured() const { return !measured_on.empty(); }
  // Time of a host update of `parameters` that moves `bytes`, while copies use the fraction `link_share` of the link.
  double update_seconds(double parameters, double bytes, MomentFormat moments, double link_share = 0) const {
    const double beside = dram_beside_dma_bytes_per_s > 0 ? dram_beside_dma_bytes_per_s : dram_bytes_per_s;
    const double memory_s = bytes / (dram_bytes_per_s - link_share * (dram_bytes_per_s - beside));
    const bool coded = moments == MomentFormat::int8 && int8_updates_per_s > 0;
    return coded && memory_s < parameters / int8_updates_per_s ? parameters / int8_updates_per_s : memory_s;
  }
  // Time of matmuls and attention, and of recurrences.
  double compute_seconds(double flops, double recurrence_flops) const {
    return flops / flops_per_s + recurrence_flops / (recurrence_flops_per_s > 0 ? recurrence_flops_per_s : flops_per_s);
  }
  // "h200 (from data sheets)", "NVIDIA H200 (measured on 2026-11-16)"
  std::string title() const;
};

// Throws Error(bad_config), naming the field, for values that no machine has. `where` is the file or the name of the
// machine. Refused are:
//   - a speed that is zero, negative, not a number or beyond any hardware
//   - both directions of the link together slower than one
//   - DRAM that is faster during copies
//   - tables that do not ascend
void check_profile(const MachineProfile& profile, const std::string& where);

nlohmann::json profile_to_json(const MachineProfile& profile);
// Strict: requires every field and no other, and calls check_profile(). Throws Error(bad_config).
MachineProfile profile_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace megatrain
