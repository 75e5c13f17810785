#include "megatrain/foreign/translate.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/escape.h"
#include "megatrain/foreign/methods.h"
#include "megatrain/foreign/reader.h"

namespace megatrain {

std::vector<Translation> ForeignReader::run(std::vector<std::string>& problems) {
  for (const auto& list : trainer_.renamed)
    for (const RenamedKey& each : list) attempt([&] { rename(each); });
  trainer_.rules(*this);
  for (const auto& [name, value] : given_) {
    if (is_translated(name)) continue;
    if (const ForeignIdle* row = find_idle(trainer_, name))
      attempt([&, &name = name, &value = value] { idle(name, idle_note(*row, name, value)); });
    else if (const std::string note = method_note(trainer_, name); !note.empty())
      idle(name, note);
  }
  problems = std::move(problems_);
  return std::move(out_);
}

bool ForeignReader::is_translated(const std::string& name) const {
  return std::any_of(out_.begin(), out_.end(), [&](const Translation& each) { return each.from == name; });
}

void ForeignReader::attempt(const std::function<void()>& rule) {
  try {
    rule();
  } catch (const Error& e) {
    // Several rules may read the same key.
    if (std::find(problems_.begin(), problems_.end(), e.what()) == problems_.end()) problems_.push_back(e.what());
  }
}

const Foreign* ForeignReader::find(const char* name) const {
  const auto found = given_.find(name);
  return found == given_.end() || found->second.null ? nullptr : &found->second;
}

double ForeignReader::number(const char* name, double standard) const {
  const Foreign* value = find(name);
  return value ? foreign_double(name, *value) : standard;
}

int64_t ForeignReader::count(const char* name, int64_t standard) const {
  if (!is_given(name)) return standard;
  const int64_t number = std::stoll(foreign_whole(name, given_.at(name)));
  if (number < 1 || number > 1'000'000'000)
    fail_config(
        fmt::format("{}: {} is {}, expected a whole number from 1 to 1000000000", given_.at(name).where, name, number));
  return number;
}

std::string ForeignReader::text(const char* name, const char* standard) const {
  const Foreign* value = find(name);
  return value ? value->text : standard;
}

std::string ForeignReader::shown(const std::string& name, const char* standard) const {
  const auto found = given_.find(name);
  const std::string written = foreign_key_name(name);
  if (found == given_.end()) return fmt::format("{}: {}", written, standard);
  return fmt::format("{}: {}", written, found->second.null ? "null" : found->second.text);
}

Translation& ForeignReader::add(const std::string& from, const char* standard, std::string key, std::string text,
                                std::string note) {
  out_.push_back({.from = from,
                  .theirs = shown(from, standard),
                  .key = std::move(key),
                  .text = std::move(text),
                  .note = std::move(note),
                  .given = is_given(from.c_str())});
  return out_.back();
}

const Translation* ForeignReader::translated(const char* key) const {
  const auto found = std::find_if(out_.begin(), out_.end(), [&](const Translation& each) { return each.key == key; });
  return found == out_.end() ? nullptr : &*found;
}

void ForeignReader::idle(const std::string& name, const std::string& why) {
  if (is_given(name.c_str())) add(name, "", "", "", why);
}

void ForeignReader::differs(const std::string& name, const std::string& why, std::string warning) {
  add(name, "", "", "", why).warning = std::move(warning);
}

void ForeignReader::rule(const char* theirs, const char* key, const char* text, const char* note) {
  out_.push_back({.from = theirs, .theirs = theirs, .key = key, .text = text, .note = note, .given = false});
}

void ForeignReader::expect(const char* name, const std::vector<std::string>& accepted, const char* otherwise,
                           const char* why) {
  const Foreign* value = find(name);
  if (value && std::find(accepted.begin(), accepted.end(), value->text) == accepted.end())
    fail_config(fmt::format("{}: {} is '{}', expected {}; {}", value->where, name, value->text,
                            fmt::join(accepted, " or "), otherwise));
  idle(name, why);
}

void ForeignReader::rename(const RenamedKey& each) {
  const auto found = given_.find(each.name);
  if (found == given_.end() && (!theirs_ || !each.standard)) return;
  const bool null = each.standard && std::string(each.standard) == "null";
  const Foreign standard{.text = each.standard ? each.standard : "", .where = "", .null = null};
  const Foreign& value = found == given_.end() ? standard : found->second;
  std::string text = value.text;
  if (value.null) {
    if (!each.null)
      fail_config(
          fmt::format("{}: {} is null, expected a value; leave the line out for the default", value.where, each.name));
    text = each.null;
  } else if (each.kind == ForeignKind::number) {
    text = foreign_number(each.name, value);
  } else if (each.kind == ForeignKind::whole) {
    text = foreign_whole(each.name, value);
  } else if (each.kind == ForeignKind::flag) {
    const bool inverted = std::string(each.name).starts_with("disable_");
    text = foreign_flag(each.name, value) != inverted ? "true" : "false";
  }
  add(each.name, each.standard ? each.standard : "", each.key, text, text == kAllCheckpoints ? "all stay" : each.note);
}

std::string translation_table(const std::vector<TranslationRow>& rows) {
  constexpr size_t kWidest = 56;  // longer cells push the rest of their row to the right
  size_t theirs = 0, here = 0;
  for (const TranslationRow& row : rows) {
    if (row.theirs.size() <= kWidest) theirs = std::max(theirs, row.theirs.size());
    if (row.here.size() <= kWidest) here = std::max(here, row.here.size());
  }
  std::string text;
  const auto add = [&](const TranslationRow& row) {
    text += escape_line(fmt::format("{:{}}  {:{}}  {}", row.theirs, theirs, row.here, here, row.from)) + '\n';
  };
  add({"theirs", "here", "given or default"});
  for (const TranslationRow& row : rows) add(row);
  return text;
}

std::vector<Translation> translate(const ForeignTrainer& trainer, const ForeignKeys& given, bool theirs,
                                   const std::set<std::string>& own, const std::string& file,
                                   std::vector<std::string>& problems) {
  refuse_methods(trainer, given);
  return ForeignReader(trainer, given, theirs, own, file).run(problems);
}

}  // namespace megatrain
