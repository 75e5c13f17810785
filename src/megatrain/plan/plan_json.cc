#include "megatrain/plan/plan_json.h"

#include <array>
#include <set>

#include <fmt/format.h>
#include <xxhash.h>

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"

namespace megatrain {

using nlohmann::json;

namespace {

constexpr std::array kTiers = {Tier::hbm, Tier::host, Tier::disk};
constexpr std::array kUpdaters = {UpdatedBy::host, UpdatedBy::device};

const char* name_of(Tier tier) { return tier_name(tier); }
const char* name_of(Keep keep) { return keep_name(keep); }
const char* name_of(UpdatedBy by) { return by == UpdatedBy::host ? "host" : "device"; }

const auto& all_of(Tier) { return kTiers; }
const auto& all_of(Keep) { return kKeeps; }
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

template <class Fields>
json fields_to_json(const Fields& fields) {
  json object;
  Fields::each_field([&](const char* name, auto member) { object[name] = to_json(fields.*member); });
  return object;
}

// Reads a plan and says where it is wrong.
class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  [[noreturn]] void bad(const std::string& what) const {
    fail_config(fmt::format("{}: {}; expected what 'megatrain plan --json' prints", file_, what));
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

  // Every field, and no other.
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
      if (!known.contains(key)) bad(fmt::format("{} has the key {}, which no plan has", where, printable(key)));
    }
  }

  template <class Fields>
  std::vector<Fields> list(const json& value, const std::string& where) const {
    if (!value.is_array()) bad(fmt::format("'{}' must be a list", where));
    std::vector<Fields> list;
    for (const json& item : value) list.push_back(fields<Fields>(item, fmt::format("{}[{}]", where, list.size())));
    return list;
  }

 private:
  const std::string& file_;
};

}  // namespace

json plan_to_json(const Plan& p) {
  json plan = {{"records", json::array()}, {"phases", json::array()},      {"rings", fields_to_json(p.rings)},
               {"sweeps", p.sweeps},       {"input_every", p.input_every}, {"experts_per_record", p.experts_per_record},
               {"serial", p.serial}};
  for (const RecordPlan& record : p.records) plan["records"].push_back(fields_to_json(record));
  for (const PhasePlan& phase : p.phases) plan["phases"].push_back(fields_to_json(phase));
  return plan;
}

Plan plan_from_json(const json& object, const std::string& where) {
  const Reader reader(where);
  if (!object.is_object()) reader.bad("the plan is not a JSON object");
  const auto at = [&](const char* key) -> const json& {
    if (!object.contains(key)) reader.bad(fmt::format("'{}' is missing", key));
    return object[key];
  };
  Plan p{.experts_per_record = reader.number(at("experts_per_record"), "experts_per_record"),
         .records = reader.list<RecordPlan>(at("records"), "records"),
         .phases = reader.list<PhasePlan>(at("phases"), "phases"),
         .rings = reader.fields<Rings>(at("rings"), "rings"),
         .sweeps = {},
         .input_every = reader.number(at("input_every"), "input_every")};
  if (!at("sweeps").is_array()) reader.bad("'sweeps' must be a list of integers");
  for (const json& width : at("sweeps")) p.sweeps.push_back(reader.number(width, "sweeps"));
  if (!at("serial").is_boolean()) reader.bad("'serial' must be true or false");
  p.serial = at("serial").get<bool>();
  std::set<std::string> known;
  const json empty = plan_to_json(Plan{});
  for (const auto& [key, value] : empty.items()) known.insert(key);
  reader.refuse_others(object, known, "it");
  return p;
}

std::string plan_hash(const Plan& plan) {
  const std::string text = plan_to_json(plan).dump();
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace megatrain
