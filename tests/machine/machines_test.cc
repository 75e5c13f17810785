#include "megatrain/machine/machines.h"

#include <set>
#include <string>
#include <utility>

#include "megatrain/base/units.h"
#include "tests/support/fixtures.h"

namespace megatrain {

TEST(Machines, EveryOneIsAMachineThatCanBeAndNoneIsMeasured) {
  std::set<std::string> names;
  for (const MachineProfile& machine : named_machines()) {
    EXPECT_NO_THROW(check_profile(machine, machine.name));
    EXPECT_FALSE(machine.measured()) << machine.name;
    EXPECT_NE(machine.title().find("from data sheets"), std::string::npos);
    EXPECT_GE(machine.hbm_bytes, 15 * kGiB);
    EXPECT_GE(machine.host_bytes, 60 * kGiB);
    EXPECT_TRUE(names.insert(machine.name).second) << machine.name;
    EXPECT_EQ(named_machine(machine.name), machine);
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"h100-80", "h200", "a100-40", "a100-80", "4090", "4080", "3090", "5090", "5080",
                                   "gh200", "dgx-spark", "rtx6000-blackwell", "rtx6000-ada", "l40s", "a6000", "l4"}));
}

TEST(Machines, AreKnownByTheNamesThatPeopleUse) {
  for (const auto& [name, machine] : {std::pair{"rtx4090", "4090"},
                                      {"RTX 4090", "4090"},
                                      {"4090 24GB", "4090"},
                                      {"NVIDIA GeForce RTX 5090", "5090"},
                                      {"L40S", "l40s"},
                                      {"RTX-A6000", "a6000"},
                                      {"rtx-pro-6000", "rtx6000-blackwell"},
                                      {"RTX PRO 6000 Blackwell", "rtx6000-blackwell"},
                                      {"RTX 6000 Ada", "rtx6000-ada"},
                                      {"DGX Spark", "dgx-spark"},
                                      {"GB10", "dgx-spark"},
                                      {"GH200", "gh200"},
                                      {"H100", "h100-80"},
                                      {"H100 80GB", "h100-80"},
                                      {"A100-40GB", "a100-40"},
                                      {"a100_80gb", "a100-80"},
                                      {"H200-SXM", "h200"}})
    EXPECT_EQ(named_machine(name).name, machine) << name;
  expect_error(ExitCode::bad_config, {"a100-80 or a100-40"}, [] { named_machine("A100"); });
  expect_error(ExitCode::bad_config, {"'4099'", "did you mean '4090'", "gh200", "megatrain doctor --out"},
               [] { named_machine("4099"); });
  expect_error(ExitCode::bad_config, {"'mi300x'", "machines are h200"}, [] { named_machine("mi300x"); });
}

TEST(Machines, TheH200HasTheSpeedsThatTheEstimateWasMeasuredWith) {
  MachineProfile h200 = named_machine("h200");
  EXPECT_NEAR(h200.flops_per_s, MachineProfile{}.flops_per_s, 1e6);
  EXPECT_NEAR(h200.hbm_bytes_per_s, MachineProfile{}.hbm_bytes_per_s, 1e3);
  h200.flops_per_s = MachineProfile{}.flops_per_s;
  h200.hbm_bytes_per_s = MachineProfile{}.hbm_bytes_per_s;
  h200.hbm_bytes = h200.host_bytes = h200.disk_bytes = 0;
  EXPECT_EQ(h200, MachineProfile{});
}

TEST(Machines, ADeviceIsKnownByItsNameAndAnUnknownOneTakenForTheDefault) {
  for (const auto& [device, machine] :
       {std::pair{"NVIDIA GeForce RTX 4090", "4090"}, std::pair{"NVIDIA A100-SXM4-40GB", "a100-40"},
        std::pair{"NVIDIA A100-SXM4-80GB", "a100-80"}, std::pair{"NVIDIA H100 80GB HBM3", "h100-80"},
        std::pair{"NVIDIA GH200 480GB", "gh200"}, std::pair{"NVIDIA H200", "h200"},
        std::pair{"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx6000-blackwell"},
        std::pair{"NVIDIA L40S", "l40s"}, std::pair{"NVIDIA RTX A6000", "a6000"}, std::pair{"NVIDIA L4", "l4"},
        std::pair{"NVIDIA GB10", "dgx-spark"}})
    EXPECT_EQ(machine_for_device(device).name, machine);
  EXPECT_EQ(machine_for_device("NVIDIA H200"), MachineProfile{});
  EXPECT_EQ(machine_for_device("NVIDIA T1000"), MachineProfile{});
}

}  // namespace megatrain
