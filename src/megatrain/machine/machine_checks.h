// Finds what makes training slow or impossible on this machine, with a fix for each.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

struct MachineCheck {
  std::string name;
  bool ok = true;
  std::string found, expected;
  std::string fix;  // empty if it is ok
};

struct CheckedMachine {
  std::string gpu;         // its name; empty: there is none
  std::string why_no_gpu;  // if there is none
  std::string directory;   // for scratch files
  std::vector<int> cpus;   // that this process may use
  std::string root = "";   // prefix of /proc and /sys
};

std::vector<MachineCheck> machine_checks(const CheckedMachine& machine);

}  // namespace megatrain
