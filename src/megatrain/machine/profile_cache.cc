#include "megatrain/machine/profile_cache.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/host_name.h"
#include "megatrain/base/log.h"
#include "megatrain/host/thread_team.h"
#include "megatrain/io/file.h"
#include "megatrain/io/given_json.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/user_cache.h"
#include "megatrain/io/xxh3.h"

namespace megatrain {

namespace fs = std::filesystem;
using nlohmann::json;

std::string driver_version(const std::string& root) {
  std::ifstream in(root + "/sys/module/nvidia/version");
  std::string line;
  std::getline(in, line);
  return line;
}

std::string machine_key(const Device& device) {
  return fmt::format("{}, driver {}, {} CPUs, host {}", device.name(), driver_version(), usable_cpus().size(),
                     host_name());
}

ProfileCache::ProfileCache(std::string directory, std::string key)
    : directory_(std::move(directory)),
      key_(std::move(key)),
      path_(fmt::format("{}/machine-{}.json", directory_, xxh3_128(key_.data(), key_.size()))) {}

ProfileCache::ProfileCache(const Device& device) : ProfileCache(user_cache_directory(), machine_key(device)) {}

MachineProfile read_profile(const std::string& path) {
  const json file = read_given_json(path, "expected a machine profile, as 'megatrain doctor --json' prints it");
  return profile_from_json(file.is_object() && file.contains("profile") ? file["profile"] : file, path);
}

std::optional<MachineProfile> ProfileCache::load() const {
  std::error_code none;
  if (!fs::exists(path_, none)) return {};
  try {
    const json file = read_json_file(path_);
    if (!file.is_object() || !file.contains("machine") || !file.contains("profile"))
      fail_config(path_ + ": it has no 'machine' and 'profile'");
    if (file["machine"] != key_) return {};
    MachineProfile profile = profile_from_json(file["profile"], path_);
    if (!profile.measured()) fail_config(path_ + ": the profile is not a measured one");
    return profile;
  } catch (const std::exception& error) {
    log_warn(
        fmt::format("plans are made from data sheets until 'megatrain doctor' measures this machine again: the saved "
                    "profile cannot be used ({})",
                    error.what()));
  }
  return {};
}

void ProfileCache::save(const MachineProfile& profile) const {
  std::error_code code;
  fs::create_directories(directory_, code);
  write_text_file(path_, json_text(json{{"machine", key_}, {"profile", profile_to_json(profile)}}, 1) + "\n");
}

}  // namespace megatrain
