#include "megatrain/config/dataset_choice.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/among.h"
#include "megatrain/base/nearest_name.h"
#include "megatrain/config/read_number.h"

namespace megatrain {
namespace {

constexpr const char* kFormats[] = {"auto", "messages", "sharegpt", "alpaca", "alpaca_prompt", "prompt", "text"};
constexpr const char* kKeys[] = {"path", "format", "weight", "most"};
constexpr const char* kOptions[] = {
    "subset",        "split",          "columns.messages", "columns.role",     "columns.content", "columns.system",
    "columns.tools", "columns.prompt", "columns.query",    "columns.response", "columns.history", "columns.text",
    "tags.user",     "tags.assistant", "tags.system",      "tags.observation", "tags.function"};

std::string unknown_key(const std::string& name) {
  NearestName nearest(name);
  for (const char* known : kKeys) nearest.consider(known);
  for (const char* known : kOptions) nearest.consider(known);
  if (!nearest.found().empty()) return fmt::format("unknown key '{}'; did you mean '{}'?", name, nearest.found());
  const std::string section = name.substr(0, name.find('.') + 1);
  std::vector<std::string> inside;
  for (const std::string option : kOptions)
    if (!section.empty() && option.starts_with(section)) inside.push_back(option);
  return inside.empty()
             ? fmt::format("unknown key '{}', expected path, format, weight, most, subset, split, columns.* or tags.*",
                           name)
             : fmt::format("unknown key '{}', expected {}", name, fmt::join(inside, ", "));
}

// A number of samples, or a percentage of them.
bool read_most(const std::string& text, DatasetChoice& dataset) {
  if (!text.ends_with('%')) return read_number(text, dataset.most) && dataset.most >= 1;
  int64_t& percent = dataset.most_percent;
  return read_number(text.substr(0, text.size() - 1), percent) && percent >= 1 && percent <= 100;
}

std::string entry_problem(const std::string& name, const std::string& text, DatasetChoice& dataset) {
  const auto expected = [&](const std::string& what) {
    return fmt::format("{} is '{}', expected {}", name, text, what);
  };
  if (name.empty() || name == "path") {
    dataset.path = text;
  } else if (name == "format") {
    dataset.format = text;
    if (!among(kFormats, text)) return expected(dataset_formats());
  } else if (name == "weight") {
    if (!read_number(text, dataset.weight) || !(dataset.weight > 0 && dataset.weight <= 1000))
      return expected("a number above 0, at most 1000");
  } else if (name == "most") {
    if (!read_most(text, dataset)) return expected("a whole number of samples from 1, or a part from 1% to 100%");
  } else if (among(kOptions, name)) {
    dataset.options[name] = text;
  } else {
    return unknown_key(name);
  }
  return "";
}

}  // namespace

std::string dataset_formats() { return fmt::format("{}", fmt::join(kFormats, ", ")); }

std::string read_dataset_choice(const std::map<std::string, std::string>& entries, DatasetChoice& dataset) {
  std::vector<std::string> problems;
  for (const auto& [name, text] : entries)
    if (std::string problem = entry_problem(name, text, dataset); !problem.empty())
      problems.push_back(std::move(problem));
  if (problems.empty() && dataset.path.empty()) problems.push_back("no path; give the file or folder as path");
  return fmt::format("{}", fmt::join(problems, "; "));
}

}  // namespace megatrain
