// The machine as the estimate sees it: how fast it computes and moves bytes, and how many bytes each tier has.
// Estimates are only as good as these. Measured on this machine by `megatrain doctor`, or from data sheets
// (machine/machines.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "megatrain/tensor/state_format.h"

namespace megatrain {

// A rate that depends on size: of a product on its flops, of experts' products on the flops of one expert, of attention
// on the length of a sequence.
struct RatePoint {
  double size = 0;
  double per_s = 0;
  bool operator==(const RatePoint&) const = default;
};
using RateTable = std::vector<RatePoint>;  // ascending sizes; empty: not measured

// Between two points the rate goes by the logarithm of the size; beyond the ends it is the end's.
double rate_at(const RateTable& table, double size);

// The defaults are those of one H200 on PCIe 5 with its host, as whole training steps use them.
struct MachineProfile {
  double flops_per_s = 640e12;  // of whole layers, small kernels included
  double hbm_bytes_per_s = 3.2e12;
  double h2d_bytes_per_s = 50e9;
  double d2h_bytes_per_s = 50e9;
  double dram_bytes_per_s = 130e9;  // moved by the optimizer's mix of reads and writes, the link idle
  bool updates_on_device = true;    // false: the device is the host's own CPU, so updating there gains nothing

  double link_both_bytes_per_s = 0;        // the sum of both ways at once; 0: each way has its own
  double dram_beside_dma_bytes_per_s = 0;  // the same mix while the link is busy both ways; 0: as alone
  double disk_read_bytes_per_s = 2.7e9;
  double disk_write_bytes_per_s = 1.5e9;
  double disk_both_bytes_per_s = 2.6e9;  // the sum of both ways at once; 0: each way has its own
  double int8_updates_per_s = 4e9;  // parameters that the host's cores update with int8 moments; 0: as fast as memory
  int64_t shared_cores = 0;         // the lanes share so many cores; 0: the device computes and copies by itself

  RateTable product_rates;    // flops/s by flops of one product
  RateTable expert_rates;     // flops/s of the products of a layer's experts by flops of one of these
  RateTable attention_rates;  // flops/s by length of a sequence

  double attention_flops_per_s = 0;  // of the attention of one run (train/site.h); 0: flops_per_s

  int64_t hbm_bytes = 0;  // of the tiers; 0: not known
  int64_t host_bytes = 0;
  int64_t disk_bytes = 0;

  std::string name = "h200";
  std::string measured_on;  // the date; empty: from data sheets

  bool operator==(const MachineProfile&) const = default;
  bool measured() const { return !measured_on.empty(); }
  // Of the host's update of so many parameters, which moves so many bytes, while copies take a share of what the link
  // can move.
  double update_seconds(double parameters, double bytes, MomentFormat moments, double link_share = 0) const {
    const double beside = dram_beside_dma_bytes_per_s > 0 ? dram_beside_dma_bytes_per_s : dram_bytes_per_s;
    const double memory_s = bytes / (dram_bytes_per_s - link_share * (dram_bytes_per_s - beside));
    const bool coded = moments == MomentFormat::int8 && int8_updates_per_s > 0;
    return coded && memory_s < parameters / int8_updates_per_s ? parameters / int8_updates_per_s : memory_s;
  }
  // "h200 (from data sheets)", "NVIDIA H200 (measured on 2026-11-16)"
  std::string title() const;
};

// Throws Error(bad_config) that names the field which no machine has: a speed of zero, below zero, not a number or
// beyond any hardware, both ways of the link slower than one, DRAM faster beside copies, tables that do not ascend.
// `where` is the file or the name of the machine.
void check_profile(const MachineProfile& profile, const std::string& where);

nlohmann::json profile_to_json(const MachineProfile& profile);
// Strict: every field, no other, and check_profile(). Throws Error(bad_config).
MachineProfile profile_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace megatrain
