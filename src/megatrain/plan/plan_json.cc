#include "megatrain/plan/plan_json.h"

#include <array>
#include <set>
#include <type_traits>

#include <fmt/format.h>
#include <xxhash.h>

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/plan/check_plan.h"

namespace megatrain {

using nlohmann::json;

namespace {

constexpr std::array kTiers = {Tier::hbm, Tier::host, Tier::disk, Tier::files};
constexpr std::array kUpdaters = {UpdatedBy::host, UpdatedBy::device};

const char* name_of(Tier tier) { return tier_name(tier); }
const char* name_of(UpdatedBy by) { return by == UpdatedBy::host ? "host" : "device"; }

const auto& all_of(Tier) { return kTiers; }
const auto& all_of(UpdatedBy) { return kUpdaters; }

template <class Value>
std::string names_of_all() {
  std::string text;
  for (const Value value : all_of(Value{})) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", name_of(value));
  return text;
}

template <class Value>
json to_json(Value value) {
  return name_of(value);
}
json to_json(int64_t value) { return value; }

// `to` turns a field's value into JSON.
template <class Fields, class To>
json fields_to_json(const Fields& fields, const To& to) {
  json object;
  Fields::each_field([&](const char* name, auto member) { object[name] = to(fields.*member); });
  return object;
}

json phase_to_json(const PhaseWork& work, const PhasePlan& phase) {
  return fields_to_json(phase, [&]<class Value>(Value value) -> json {
    if constexpr (std::is_same_v<Value, Keep>) {
      return work.level(value).name;
    } else {
      return to_json(value);
    }
  });
}

// Parses a plan; errors say where it is wrong.
class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  [[noreturn]] void bad(const std::string& what) const {
    fail_config(fmt::format("{}: {}; expected the output of 'megatrain plan --json'", file_, what));
  }

  const json& at(const json& plan, const char* key) const {
    if (!plan.is_object()) bad("the plan is not a JSON object");
    if (!plan.contains(key)) bad(fmt::format("'{}' is missing", key));
    return plan[key];
  }

  int64_t number(const json& value, const std::string& where) const {
    if (!value.is_number_integer()) bad(fmt::format("'{}' must be an integer", where));
    return value.get<int64_t>();
  }

  void read(const json& value, const std::string& where, int64_t& into) const { into = number(value, where); }
  template <class Value>
  void read(const json& value, const std::string& where, Value& into) const {
    for (const Value known : all_of(into)) {
      if (value == json(name_of(known))) {
        into = known;
        return;
      }
    }
    bad(fmt::format("'{}' is {}, not one of {}", where, value.dump(), names_of_all<Value>()));
  }
  void read(const json& value, const std::string& where, Keep& into) const {
    std::string names;
    for (size_t level = 0; level < levels_->size(); ++level) {
      const std::string& name = (*levels_)[level].name;
      if (value == json(name)) {
        into = Keep{static_cast<int32_t>(level)};
        return;
      }
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name);
    }
    bad(fmt::format("'{}' is {}, not one of {}", where, value.dump(), names));
  }

  // Requires every field, and no others.
  template <class Fields>
  Fields fields(const json& object, const std::string& where) const {
    if (!object.is_object()) bad(fmt::format("'{}' must be an object", where));
    Fields fields;
    std::set<std::string> known;
    Fields::each_field([&](const char* name, auto member) {
      known.insert(name);
      const std::string at = where + "." + name;
      if (!object.contains(name)) bad(fmt::format("'{}' is missing", at));
      read(object[name], at, fields.*member);
    });
    refuse_others(object, known, where);
    return fields;
  }

  void refuse_others(const json& object, const std::set<std::string>& known, const std::string& where) const {
    for (const auto& [key, value] : object.items()) {
      if (!known.contains(key)) bad(fmt::format("{} has the unknown key {}", where, printable(key)));
    }
  }

  const json& list(const json& value, const std::string& where) const {
    if (!value.is_array()) bad(fmt::format("'{}' must be a list", where));
    return value;
  }
  std::vector<RecordPlan> records(const json& list) const {
    std::vector<RecordPlan> records;
    for (const json& item : list)
      records.push_back(fields<RecordPlan>(item, fmt::format("records[{}]", records.size())));
    return records;
  }
  // Requires as many as the workload has.
  std::vector<PhasePlan> phases(const Workload& w, const json& list) {
    std::vector<PhasePlan> phases;
    for (const json& item : list) {
      levels_ = &w.phases[phases.size()].levels;
      phases.push_back(fields<PhasePlan>(item, fmt::format("phases[{}]", phases.size())));
    }
    return phases;
  }

 private:
  const std::string& file_;
  const std::vector<KeepWork>* levels_ = nullptr;  // of the phase being read
};

}  // namespace

json plan_to_json(const Workload& w, const Plan& p) {
  const auto value_to_json = [](auto value) { return to_json(value); };
  json plan = {
      {"records", json::array()}, {"phases", json::array()},      {"rings", fields_to_json(p.rings, value_to_json)},
      {"sweeps", p.sweeps},       {"input_every", p.input_every}, {"experts_per_record", p.experts_per_record},
      {"serial", p.serial}};
  for (const RecordPlan& record : p.records) plan["records"].push_back(fields_to_json(record, value_to_json));
  for (size_t phase = 0; phase < p.phases.size(); ++phase)
    plan["phases"].push_back(phase_to_json(w.phases[phase], p.phases[phase]));
  return plan;
}

int64_t planned_experts_per_record(const json& object, const std::string& where) {
  const Reader reader(where);
  return reader.number(reader.at(object, "experts_per_record"), "experts_per_record");
}

Plan plan_from_json(const Workload& w, const json& object, const std::string& where) {
  Reader reader(where);
  const auto at = [&](const char* key) -> const json& { return reader.at(object, key); };
  const int64_t experts_per_record = planned_experts_per_record(object, where);
  const json& records = reader.list(at("records"), "records");
  const json& phases = reader.list(at("phases"), "phases");
  check_sizes(w, {experts_per_record, std::ssize(phases), std::ssize(records)});
  Plan p{.experts_per_record = experts_per_record,
         .records = reader.records(records),
         .phases = reader.phases(w, phases),
         .rings = reader.fields<Rings>(at("rings"), "rings"),
         .sweeps = {},
         .input_every = reader.number(at("input_every"), "input_every")};
  if (!at("sweeps").is_array()) reader.bad("'sweeps' must be a list of integers");
  for (const json& width : at("sweeps")) p.sweeps.push_back(reader.number(width, "sweeps"));
  if (!at("serial").is_boolean()) reader.bad("'serial' must be true or false");
  p.serial = at("serial").get<bool>();
  std::set<std::string> known;
  const json empty = plan_to_json(w, Plan{});
  for (const auto& [key, value] : empty.items()) known.insert(key);
  reader.refuse_others(object, known, "it");
  return p;
}

std::string plan_hash(const Workload& w, const Plan& plan) {
  const std::string text = plan_to_json(w, plan).dump();
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace megatrain
