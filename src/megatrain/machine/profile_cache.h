// The measured profile of a machine, kept in a file of the user's cache. Measured by `megatrain doctor` alone; where it
// is there, every plan is made with it.
#pragma once

#include <optional>
#include <string>

#include "megatrain/device/device.h"
#include "megatrain/machine/machine_profile.h"

namespace megatrain {

// The version of the NVIDIA driver; empty where there is none. `root` stands before /sys.
std::string driver_version(const std::string& root = "");

// What a profile holds for: device, driver, CPUs and host by name.
std::string machine_key(const Device& device);

// Of a file that holds a profile, or an object with one under "profile", as 'megatrain doctor --json' prints it. Throws
// Error(bad_config) for one that lies.
MachineProfile read_profile(const std::string& path);

class ProfileCache {
 public:
  // One file of `directory` for each key.
  ProfileCache(std::string directory, std::string key);
  explicit ProfileCache(const Device& device);  // this machine's, in the user's cache

  const std::string& path() const { return path_; }
  // Nothing when there is none. One that cannot be used, or lies, costs a warning.
  std::optional<MachineProfile> load() const;
  void save(const MachineProfile& profile) const;  // throws Error(io)

 private:
  std::string directory_, key_, path_;
};

}  // namespace megatrain
