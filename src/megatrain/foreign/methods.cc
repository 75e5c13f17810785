#include "megatrain/foreign/methods.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

template <class List>
const auto* find(const List& list, const std::string& name) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& each) { return matches(each.name, name); });
  return found == list.end() ? nullptr : &*found;
}

bool is_value(const std::string& name, const Foreign& value, const std::string& written) {
  if (written == "null") return value.null;
  if (written == "true" || written == "false") return foreign_flag(name, value) == (written == "true");
  return !value.null && value.text == written;
}

struct Asked {
  std::string key;  // "name: value"
  const Foreign* value;
  const char *method, *instead;
};

}  // namespace

bool is_method_key(const ForeignTrainer& trainer, const std::string& name) {
  return find(trainer.values, name) || find(trainer.choices, name) || find(trainer.switches, name) ||
         find(trainer.parameters, name);
}

void refuse_method(const std::string& name, const Foreign& value, const std::string& method,
                   const std::string& instead) {
  fail_config(fmt::format("{}: {}: {} asks for {}, which megatrain does not do; {}", value.where, name, value.text,
                          method, instead));
}

// In the order of the tables, so that the message names the file's method and not a detail of it. The other methods are
// listed briefly.
void refuse_methods(const ForeignTrainer& trainer, const ForeignKeys& given) {
  std::vector<Asked> asked;
  const auto add = [&](const std::string& name, const Foreign& value, const auto& row) {
    const auto same = [&](const Asked& each) { return std::string(each.method) == row.method; };
    if (std::none_of(asked.begin(), asked.end(), same))
      asked.push_back({fmt::format("{}: {}", name, value.null ? "null" : value.text), &value, row.method, row.instead});
  };
  const auto add_values = [&](const std::vector<MethodValue>& rows) {
    for (const MethodValue& row : rows) {
      const auto found = given.find(row.name);
      const auto named = [&](const Asked& each) { return each.value == &found->second; };
      if (found != given.end() && is_on(found->second) && matches(row.value, found->second.text) &&
          std::none_of(asked.begin(), asked.end(), named))
        add(row.name, found->second, row);
    }
  };
  add_values(trainer.values);
  for (const MethodSwitch& row : trainer.switches) {
    if (row.unless && row.unless(given)) continue;
    for (const auto& [name, value] : given)
      if (matches(row.name, name) && (row.even_off ? !value.null : is_on(value))) add(name, value, row);
  }
  add_values(trainer.choices);
  if (asked.empty()) {
    if (trainer.refuse) trainer.refuse(trainer, given);
    return;
  }
  const Asked& first = asked.front();
  std::vector<std::string> rest;
  for (auto each = asked.begin() + 1; each != asked.end(); ++each)
    rest.push_back(fmt::format("{}: {} asks for {}", each->value->where, each->key, each->method));
  fail_config(fmt::format("{}: {} asks for {}, which megatrain does not do; {}{}", first.value->where, first.key,
                          first.method, first.instead,
                          rest.empty() ? "" : fmt::format(". Also not supported: {}", fmt::join(rest, "; "))));
}

std::string method_note(const ForeignTrainer& trainer, const std::string& name) {
  if (const MethodParameter* parameter = find(trainer.parameters, name))
    return fmt::format("not used: it belongs to {}", parameter->of);
  return find(trainer.switches, name) ? "not used: it is switched off" : "";
}

const ForeignIdle* find_idle(const ForeignTrainer& trainer, const std::string& name) {
  for (const auto& list : trainer.idle)
    if (const ForeignIdle* idle = find(list, name)) return idle;
  return nullptr;
}

std::string idle_note(const ForeignIdle& idle, const std::string& name, const Foreign& value) {
  if (!idle.only) return idle.why;
  std::stringstream accepted(idle.only);
  std::vector<std::string> all;
  for (std::string each; accepted >> each;) {
    if (is_value(name, value, each)) return idle.why;
    all.push_back(each);
  }
  fail_config(fmt::format("{}: {} is '{}', expected {}: {}", value.where, name, value.null ? "null" : value.text,
                          fmt::join(all, " or "), idle.why));
}

}  // namespace megatrain
