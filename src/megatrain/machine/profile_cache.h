// The measured profile of a machine, in a file of the user's cache. Only `megatrain doctor` measures it; if it exists,
// every plan uses it.
#pragma once

#include <optional>
#include <string>

#include "megatrain/device/device.h"
#include "megatrain/machine/machine_profile.h"

namespace megatrain {

// The version of the NVIDIA driver; empty if there is none. `root` is the prefix of /sys.
std::string driver_version(const std::string& root = "");

// What a profile is valid for: device, driver, CPUs and host, by name.
std::string machine_key(const Device& device);

// Reads a profile from a file, or from an object with one under "profile", as 'megatrain doctor --json' prints it.
// Throws Error(bad_config) for an implausible one.
MachineProfile read_profile(const std::string& path);

class ProfileCache {
 public:
  // `directory` has one file per key.
  ProfileCache(std::string directory, std::string key);
  explicit ProfileCache(const Device& device);  // this machine's, in the user's cache

  const std::string& path() const { return path_; }
  // Returns nothing if there is none. An unusable or implausible one is ignored with a warning.
  std::optional<MachineProfile> load() const;
  void save(const MachineProfile& profile) const;  // throws Error(io)

 private:
  std::string directory_, key_, path_;
};

}  // namespace megatrain
