#include "megatrain/machine/machine_profile.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/json.h"

namespace megatrain {

using nlohmann::json;

namespace {

// Plausible limits: no single machine has a component outside them.
struct Limits {
  double least, most;
  const char* unit;
};
constexpr Limits kBytesPerS{1e6, 1e14, "bytes/s"}, kFlopsPerS{1e8, 1e17, "flops/s"},
    kUpdatesPerS{1e5, 1e13, "parameters/s"};
constexpr int64_t kMostBytes = int64_t{1} << 54;  // 16 PiB
constexpr int64_t kMostCores = 1 << 16;

struct Speed {
  const char* name;
  double MachineProfile::*value;
  Limits limits;
  bool may_be_unknown = false;  // 0 means unknown
};
constexpr Speed kSpeeds[] = {
    {"flops_per_s", &MachineProfile::flops_per_s, kFlopsPerS},
    {"hbm_bytes_per_s", &MachineProfile::hbm_bytes_per_s, kBytesPerS},
    {"h2d_bytes_per_s", &MachineProfile::h2d_bytes_per_s, kBytesPerS},
    {"d2h_bytes_per_s", &MachineProfile::d2h_bytes_per_s, kBytesPerS},
    {"link_both_bytes_per_s", &MachineProfile::link_both_bytes_per_s, kBytesPerS, true},
    {"dram_bytes_per_s", &MachineProfile::dram_bytes_per_s, kBytesPerS},
    {"dram_beside_dma_bytes_per_s", &MachineProfile::dram_beside_dma_bytes_per_s, kBytesPerS, true},
    {"disk_read_bytes_per_s", &MachineProfile::disk_read_bytes_per_s, kBytesPerS},
    {"disk_write_bytes_per_s", &MachineProfile::disk_write_bytes_per_s, kBytesPerS},
    {"disk_both_bytes_per_s", &MachineProfile::disk_both_bytes_per_s, kBytesPerS, true},
    {"int8_updates_per_s", &MachineProfile::int8_updates_per_s, kUpdatesPerS, true},
};

struct Size {
  const char* name;
  int64_t MachineProfile::*value;
  int64_t most;
};
constexpr Size kSizes[] = {
    {"shared_cores", &MachineProfile::shared_cores, kMostCores},
    {"hbm_bytes", &MachineProfile::hbm_bytes, kMostBytes},
    {"host_bytes", &MachineProfile::host_bytes, kMostBytes},
    {"disk_bytes", &MachineProfile::disk_bytes, kMostBytes},
};

struct Rates {
  const char* name;
  RateTable MachineProfile::*table;
  const char* size;         // the unit of a point's size
  bool came_later = false;  // older profiles lack it
};
constexpr Rates kTables[] = {
    {"product_rates", &MachineProfile::matmul_rates, "flops"},
    {"expert_rates", &MachineProfile::expert_rates, "flops", true},
    {"attention_rates", &MachineProfile::attention_rates, "length"},
};

constexpr double kMostSize = 1e18;  // flops of one GEMM, tokens of one sequence

}  // namespace

double rate_at(const RateTable& table, double size) {
  const auto above =
      std::find_if(table.begin(), table.end(), [&](const RatePoint& point) { return point.size >= size; });
  if (above == table.end()) return table.back().per_s;
  if (above == table.begin()) return above->per_s;
  const RatePoint &low = *(above - 1), &high = *above;
  const double share = std::log(size / low.size) / std::log(high.size / low.size);
  return low.per_s + share * (high.per_s - low.per_s);
}

std::string MachineProfile::title() const {
  return fmt::format("{} ({})", name, measured() ? "measured on " + measured_on : "from data sheets");
}

void check_profile(const MachineProfile& profile, const std::string& where) {
  const auto refuse = [&](const std::string& what) {
    fail_config(fmt::format("{}: {}; measure this machine again with 'megatrain doctor'", where, what));
  };
  const auto check = [&](const std::string& name, double value, const Limits& limits) {
    if (!(value >= limits.least && value <= limits.most))
      refuse(fmt::format("{} is {}, expected {:g} to {:g} {}", name, value, limits.least, limits.most, limits.unit));
  };
  for (const Speed& speed : kSpeeds) {
    if (!(speed.may_be_unknown && profile.*speed.value == 0)) check(speed.name, profile.*speed.value, speed.limits);
  }
  for (const Size& size : kSizes) {
    if (profile.*size.value < 0 || profile.*size.value > size.most)
      refuse(fmt::format("{} is {}, expected 0 to {}", size.name, profile.*size.value, size.most));
  }
  for (const Rates& rates : kTables) {
    double before = 0;
    for (const RatePoint& point : profile.*rates.table) {
      if (!(point.size > before && point.size <= kMostSize))
        refuse(
            fmt::format("{} has {} {} after {}, expected ascending sizes", rates.name, rates.size, point.size, before));
      check(fmt::format("the rate of {} at {} {}", rates.name, point.size, rates.size), point.per_s, kFlopsPerS);
      before = point.size;
    }
  }
  const double both = profile.link_both_bytes_per_s, one = std::max(profile.h2d_bytes_per_s, profile.d2h_bytes_per_s);
  // measurements vary, so the checks are loose
  if (both > 0 && both < 0.5 * one)
    refuse(fmt::format("link_both_bytes_per_s is {}, less than half of one direction, {}", both, one));
  if (both > 1.5 * (profile.h2d_bytes_per_s + profile.d2h_bytes_per_s))
    refuse(fmt::format("link_both_bytes_per_s is {}, more than the two ways can do", both));
  if (profile.dram_beside_dma_bytes_per_s > 1.5 * profile.dram_bytes_per_s)
    refuse(fmt::format("dram_beside_dma_bytes_per_s is {}, more than without copies, {}",
                       profile.dram_beside_dma_bytes_per_s, profile.dram_bytes_per_s));
}

json profile_to_json(const MachineProfile& profile) {
  json object = {{"name", profile.name},
                 {"measured", profile.measured()},
                 {"measured_on", profile.measured_on},
                 {"updates_on_device", profile.updates_on_device}};
  for (const Speed& speed : kSpeeds) object[speed.name] = profile.*speed.value;
  for (const Size& size : kSizes) object[size.name] = profile.*size.value;
  for (const Rates& rates : kTables) {
    json list = json::array();
    for (const RatePoint& point : profile.*rates.table)
      list.push_back({{rates.size, point.size}, {"flops_per_s", point.per_s}});
    object[rates.name] = list;
  }
  return object;
}

MachineProfile profile_from_json(const json& object, const std::string& where) {
  const auto refuse = [&](const std::string& what) {
    fail_config(fmt::format("{}: {}; expected a machine profile, as 'megatrain doctor --json' prints it", where, what));
  };
  if (!object.is_object()) refuse("it is not a JSON object");
  std::set<std::string> known;
  const auto field = [&](const std::string& name, bool (*is_right)(const json&), const char* type) -> const json& {
    known.insert(name);
    if (!object.contains(name) || !is_right(object[name])) refuse(fmt::format("'{}' must be {}", name, type));
    return object[name];
  };
  const auto is_text = [](const json& v) { return v.is_string(); };
  const auto is_switch = [](const json& v) { return v.is_boolean(); };
  const auto is_number = [](const json& v) { return v.is_number(); };
  const auto is_integer = [](const json& v) { return v.is_number_integer(); };
  const auto is_list = [](const json& v) { return v.is_array(); };

  MachineProfile profile;
  profile.name = field("name", is_text, "a text").get<std::string>();
  profile.measured_on = field("measured_on", is_text, "a date, or empty").get<std::string>();
  if (field("measured", is_switch, "true or false").get<bool>() != profile.measured())
    refuse("'measured' must be true when 'measured_on' has a date, and false when it is empty");
  profile.updates_on_device = field("updates_on_device", is_switch, "true or false").get<bool>();
  for (const Speed& speed : kSpeeds) profile.*speed.value = field(speed.name, is_number, "a number").get<double>();
  for (const Size& size : kSizes) profile.*size.value = field(size.name, is_integer, "an integer").get<int64_t>();
  for (const Rates& rates : kTables) {
    if (rates.came_later && !object.contains(rates.name)) continue;
    for (const json& point : field(rates.name, is_list, "a list")) {
      const auto has_number = [&](const char* name) { return point.contains(name) && point[name].is_number(); };
      if (!point.is_object() || !has_number(rates.size) || !has_number("flops_per_s"))
        refuse(fmt::format("'{}' must hold objects with the numbers '{}' and 'flops_per_s'", rates.name, rates.size));
      (profile.*rates.table).push_back({point[rates.size].get<double>(), point["flops_per_s"].get<double>()});
    }
  }
  for (const auto& [name, value] : object.items()) {
    if (!known.contains(name)) refuse(fmt::format("'{}' is not a field of a profile", name));
  }
  check_profile(profile, where);
  return profile;
}

}  // namespace megatrain
