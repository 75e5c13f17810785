// What about this machine makes training slower or impossible, with the fix for each.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

struct MachineCheck {
  std::string name;
  bool ok = true;
  std::string found, expected;
  std::string fix;  // empty where it is ok
};

struct CheckedMachine {
  std::string gpu;         // its name; empty: there is none
  std::string why_no_gpu;  // then
  std::string directory;   // of scratch files
  std::vector<int> cpus;   // that this process may use
  std::string root = "";   // before /proc and /sys
};

std::vector<MachineCheck> machine_checks(const CheckedMachine& machine);

}  // namespace megatrain
