#include "megatrain/machine/machines.h"

#include <algorithm>
#include <cctype>
#include <regex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/nearest_name.h"
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
    // One pool of LPDDR5X with 273 GB/s for CPU and GPU; half of its 119 GiB is planned for each.
    {"dgx-spark", 125, 0.273, 59, 100e9, 273e9 * kOfPeakDram, 60, 273e9},
    {"rtx6000-blackwell", 504, 1.79, 94, kPcie5, kServerDram, 128},
    {"rtx6000-ada", 364, 0.96, 47, kPcie4, kServerDram, 128},
    {"l40s", 362, 0.864, 44, kPcie4, kServerDram, 128},
    {"a6000", 155, 0.768, 47, kPcie4, kServerDram, 128},
    {"l4", 121, 0.3, 22, kPcie4, kServerDram, 64},
};
constexpr Sheet kDesktops[] = {
    {"5090", 210, 1.79, 31, kPcie5, kDdr5Desktop, 64}, {"5080", 112, 0.96, 15, kPcie5, kDdr5Desktop, 64},
    {"4090", 165, 1.01, 23, kPcie4, kDdr5Desktop, 64}, {"4080", 97, 0.717, 15, kPcie4, kDdr5Desktop, 64},
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

// Other names that people use for these machines, without what plain_name() drops.
struct Alias {
  const char *name, *machine;
};
constexpr Alias kAliases[] = {{"h100", "h100-80"},
                              {"h100sxm", "h100-80"},
                              {"h100sxm5", "h100-80"},
                              {"h100pcie", "h100-80"},
                              {"h200sxm", "h200"},
                              {"h200nvl", "h200"},
                              {"pro6000", "rtx6000-blackwell"},
                              {"pro6000blackwell", "rtx6000-blackwell"},
                              {"6000pro", "rtx6000-blackwell"},
                              {"gracehopper", "gh200"},
                              {"spark", "dgx-spark"},
                              {"gb10", "dgx-spark"}};

// "4090" of "NVIDIA GeForce RTX 4090", "h10080" of "H100 80GB": lower case, without makers, dashes and blanks.
std::string plain_name(const std::string& name) {
  std::string plain;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  static const std::regex kMakers("nvidia|geforce|quadro|tesla|rtx|gb$");
  return std::regex_replace(plain, kMakers, "");
}

// "4090" of "4090 24GB".
std::string without_memory(const std::string& name) {
  static const std::regex kMemory("[-_ ]?[0-9]+ ?gi?b$", std::regex::icase);
  return std::regex_replace(name, kMemory, "");
}

const MachineProfile* find_machine(const std::string& name) {
  const std::string plain = plain_name(name);
  for (const MachineProfile& machine : named_machines()) {
    if (plain_name(machine.name) == plain) return &machine;
  }
  for (const Alias& alias : kAliases) {
    if (alias.name == plain) return find_machine(alias.machine);
  }
  return nullptr;
}

}  // namespace

const std::vector<MachineProfile>& named_machines() {
  static const std::vector<MachineProfile> kMachines = make_machines();
  return kMachines;
}

const MachineProfile& named_machine(const std::string& name) {
  if (const MachineProfile* machine = find_machine(name)) return *machine;
  if (const MachineProfile* machine = find_machine(without_memory(name))) return *machine;
  if (plain_name(name) == "a100") fail_config("'a100' may be a100-80 or a100-40; give one of these names");
  NearestName nearest(plain_name(name));
  for (const MachineProfile& machine : named_machines()) nearest.consider(plain_name(machine.name), machine.name);
  for (const Alias& alias : kAliases) nearest.consider(alias.name, alias.machine);
  fail_config(fmt::format(
      "there is no machine named '{}'{}; machines are {}. Of another one, give the profile that "
      "'megatrain doctor --out FILE.json' writes there",
      name, nearest.found().empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest.found()), machine_names()));
}

MachineProfile machine_for_device(const std::string& device_name) {
  // all words must be in the device's name; the first match counts
  struct Match {
    const char* machine;
    std::vector<const char*> words;
  };
  static const std::vector<Match> kMatches = {{"gh200", {"GH200"}},
                                              {"h100-80", {"H100"}},
                                              {"a100-40", {"A100", "40GB"}},
                                              {"a100-80", {"A100"}},
                                              {"5090", {"RTX 5090"}},
                                              {"5080", {"RTX 5080"}},
                                              {"4090", {"RTX 4090"}},
                                              {"4080", {"RTX 4080"}},
                                              {"3090", {"RTX 3090"}},
                                              {"rtx6000-blackwell", {"RTX PRO 6000", "Blackwell"}},
                                              {"l40s", {"L40"}},
                                              {"rtx6000-ada", {"RTX 6000 Ada"}},
                                              {"a6000", {"RTX A6000"}},
                                              {"dgx-spark", {"GB10"}},
                                              {"l4", {"NVIDIA L4"}}};
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
