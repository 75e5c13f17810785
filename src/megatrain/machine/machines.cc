#include "megatrain/machine/machines.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"

namespace megatrain {

namespace {

// The share of a data sheet's figures that complete layers reach, as measured on the H200: 640 of 989 TFLOP/s (dense
// bf16, fp32 accumulation) and 3.2 of 4.8 TB/s. Assumed for all GPUs.
constexpr double kOfPeakFlops = 640.0 / 989, kOfPeakHbm = 3.2 / 4.8;
// Copies in large pieces: measured 50 of PCIe 5's 63 GB/s. PCIe 4 has half of that.
constexpr double kPcie5 = 50e9, kPcie4 = 25e9;
// The share of peak bandwidth that the optimizer's mix of reads and writes reaches: alone, and during copies both ways.
constexpr double kOfPeakDram = 0.65, kOfPeakDramBesideDma = 0.5;
// The H200's host in complete steps (16 cores of a server); assumed for similar servers.
constexpr double kServerDram = 130e9;
constexpr double kDdr5Desktop = 89.6e9, kDdr4Desktop = 51.2e9;  // two channels at 5600 and 3200 MT/s

struct Sheet {
  const char* name;
  double tflops;    // dense bf16 GEMMs with fp32 accumulation
  double hbm_tb_s;  // TB/s
  int64_t hbm_gib;  // as the driver reports it, in whole GiB
  double link;      // bytes/s in each direction
  double dram;      // bytes/s; for desktops the memory's peak
  int64_t ram_gib;  // of a typical host
  double both = 0;  // both directions of the link together; 0: they are independent
};

constexpr Sheet kServers[] = {
    {"h200", 989, 4.8, 139, kPcie5, kServerDram, 125},
    {"h100-80", 989, 3.35, 79, kPcie5, kServerDram, 200},
    {"a100-80", 312, 2.04, 79, kPcie4, kServerDram, 200},
    {"a100-40", 312, 1.555, 39, kPcie4, kServerDram, 200},
    // NVLink-C2C has 450 GB/s in each direction. Behind it is LPDDR5X with 384 GB/s, shared by both and the update.
    {"gh200", 989, 4.0, 94, 450e9, 384e9 * kOfPeakDram, 432, 384e9},
    {"rtx6000-blackwell", 504, 1.79, 94, kPcie5, kServerDram, 128},
};
constexpr Sheet kDesktops[] = {
    {"5090", 210, 1.79, 31, kPcie5, kDdr5Desktop, 64},
    {"4090", 165, 1.01, 23, kPcie4, kDdr5Desktop, 64},
    {"3090", 71, 0.936, 23, kPcie4, kDdr4Desktop, 64},
};

MachineProfile server(const Sheet& sheet) {
  return {.flops_per_s = sheet.tflops * 1e12 * kOfPeakFlops,
          .hbm_bytes_per_s = sheet.hbm_tb_s * 1e12 * kOfPeakHbm,
          .h2d_bytes_per_s = sheet.link,
          .d2h_bytes_per_s = sheet.link,
          .dram_bytes_per_s = sheet.dram,
          .link_both_bytes_per_s = sheet.both,
          .hbm_bytes = sheet.hbm_gib * kGiB,
          .host_bytes = sheet.ram_gib * kGiB,
          .disk_bytes = 931 * kGiB,  // a 1 TB drive
          .name = sheet.name};
}

MachineProfile desktop(const Sheet& sheet) {
  MachineProfile machine = server(sheet);
  machine.dram_bytes_per_s = sheet.dram * kOfPeakDram;
  machine.dram_beside_dma_bytes_per_s = sheet.dram * kOfPeakDramBesideDma;
  return machine;
}

std::vector<MachineProfile> make_machines() {
  std::vector<MachineProfile> machines;
  for (const Sheet& sheet : kServers) machines.push_back(server(sheet));
  for (const Sheet& sheet : kDesktops) machines.push_back(desktop(sheet));
  return machines;
}

}  // namespace

const std::vector<MachineProfile>& named_machines() {
  static const std::vector<MachineProfile> kMachines = make_machines();
  return kMachines;
}

const MachineProfile& named_machine(const std::string& name) {
  for (const MachineProfile& machine : named_machines()) {
    if (machine.name == name) return machine;
  }
  fail_config(fmt::format("there is no machine named '{}'; machines are {}", name, machine_names()));
}

MachineProfile machine_for_device(const std::string& device_name) {
  // all words must be in the device's name; the first match counts
  struct Match {
    const char* machine;
    std::vector<const char*> words;
  };
  static const std::vector<Match> kMatches = {
      {"gh200", {"GH200"}},          {"h100-80", {"H100"}},
      {"a100-40", {"A100", "40GB"}}, {"a100-80", {"A100"}},
      {"5090", {"RTX 5090"}},        {"4090", {"RTX 4090"}},
      {"3090", {"RTX 3090"}},        {"rtx6000-blackwell", {"RTX PRO 6000", "Blackwell"}}};
  for (const Match& match : kMatches) {
    if (std::all_of(match.words.begin(), match.words.end(),
                    [&](const char* word) { return device_name.find(word) != std::string::npos; }))
      return named_machine(match.machine);
  }
  return {};
}

std::string machine_names() {
  std::vector<std::string> names;
  for (const MachineProfile& machine : named_machines()) names.push_back(machine.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace megatrain
