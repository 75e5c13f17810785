#include "megatrain/config/translated_keys.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/log.h"
#include "megatrain/config/config_keys.h"

namespace megatrain {

std::vector<Translation> take_foreign_keys(GivenKeys& given, std::vector<std::string>& problems) {
  std::set<std::string> own;
  for (const auto& [name, key] : given.own) own.insert(name);
  ForeignKeys keys;
  for (const auto& [name, key] : given.foreign) keys[name] = key.value;
  std::vector<std::string> found;
  const std::vector<Translation> translations = translate(*given.trainer, keys, given.theirs, own, given.file, found);
  problems.insert(problems.end(), found.begin(), found.end());
  for (const Translation& t : translations) {
    if (!t.stage.empty()) given.stage = t.stage;
    if (t.key.empty()) continue;
    const auto own_key = given.own.find(t.key);
    const bool is_own = own_key != given.own.end();
    const ConfigText value{.text = t.text, .null = t.text == "null", .items = t.items};
    if (!t.given) {
      if (!is_own) given.own[t.key] = {value, given.file, false, t.from};
      if (!is_own) given.names.add(t.key, is_key_of(*given.trainer, t.from) ? foreign_key_name(t.from) : "", false);
      continue;
    }
    const GivenForeign& from = given.foreign.at(t.from);
    if (is_own && own_key->second.on_command_line == from.on_command_line)
      problems.push_back(fmt::format("{}: {} means {}, which is given too ({}); keep one", from.value.where,
                                     foreign_key_name(t.from), t.key, own_key->second.origin));
    if (is_own && own_key->second.on_command_line) continue;
    given.own[t.key] = {value, from.value.where, from.on_command_line, t.from};
    given.names.add(t.key, foreign_key_name(t.from), true);
  }
  if (!given.theirs) return translations;
  for (const auto& list : given.trainer->renamed)  // messages may mention keys that are not set
    for (const RenamedKey& each : list)
      if (!given.has(each.key)) given.names.add(each.key, foreign_key_name(each.name), false);
  given.names.add("columns", given.trainer->columns, false);  // the columns of a dataset
  return translations;
}

void show_translations(const std::vector<Translation>& translations, const GivenKeys& given, TrainConfig& config) {
  std::vector<TranslationRow> rows;
  for (const Translation& t : translations) {
    TranslationRow row{t.theirs, t.note, t.given ? "given" : "default"};
    if (!t.key.empty()) {
      const GivenKey& key = given.own.at(t.key);
      row.here = fmt::format("{}: {}", t.key, find_config_key(t.key)->write(config));
      if (key.theirs.empty())
        row.from = key.origin;
      else if (!t.note.empty())
        row.here += fmt::format(" ({})", t.note);
    }
    rows.push_back(std::move(row));
  }
  std::stable_partition(rows.begin(), rows.end(), [](const TranslationRow& row) { return row.from != "default"; });
  config.translation = translation_table(rows);
  log_info(
      fmt::format("{}, in megatrain's words{}:", given.file,
                  given.theirs ? fmt::format(", with {}'s defaults for what is not given", given.trainer->name) : ""));
  std::istringstream lines(config.translation);
  for (std::string line; std::getline(lines, line);) log_info(line);
  for (const Translation& t : translations)
    if (!t.warning.empty())
      log_warn(fmt::format("{}: {}", t.given ? given.foreign.at(t.from).value.where : given.file, t.warning));
}

}  // namespace megatrain
