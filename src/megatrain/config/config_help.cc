#include "megatrain/config/config_help.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "megatrain/config/config_keys.h"

namespace megatrain {

namespace {

constexpr size_t kWidth = 110;

std::string group_of(const ConfigKey& key) {
  const std::string section = config_section(key.name);
  return section.empty() ? "run" : section;
}

std::string title_of(const std::string& group) {
  struct Title {
    const char *group, *title;
  };
  constexpr Title kTitles[] = {{"model", "the model to train"},
                               {"run", "length, batch shape, device"},
                               {"data", "what it is trained and evaluated on"},
                               {"optim", "optimizer and learning rate"},
                               {"moe", "mixtures of experts"},
                               {"eval", "evaluation while it trains"},
                               {"sample", "answers while it trains"},
                               {"state", "how the optimizer's state is stored"},
                               {"memory", "budgets"},
                               {"checkpoint", "what is saved, and what stays"},
                               {"dump", "gradients and state for comparisons"}};
  for (const Title& known : kTitles)
    if (group == known.group) return known.title;
  return "";
}

// Wraps the text at kWidth; all lines but the first are indented.
std::string wrapped(const std::string& text, size_t indent) {
  std::string out;
  size_t column = indent;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > kWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

std::string in_detail(const ConfigKey& key) {
  return fmt::format("  {}\n      {}\n      {}\n", key.name, wrapped(key.help, 6),
                     wrapped(fmt::format("Accepts {}. Default: {}.", key.accepts, key.write(TrainConfig{})), 6));
}

std::string in_short(const ConfigKey& key) {
  constexpr size_t kIndent = 28;
  const std::string value = key.write(TrainConfig{});
  std::string help = key.help;
  const bool said = help.find("Not given:") != std::string::npos;
  if (value != "null" && !said) help += fmt::format(" Default: {}.", value);
  const bool long_name = key.name.size() + 3 > kIndent;  // then the help begins on the next line
  return fmt::format("  {:<{}}{}\n", long_name ? key.name + "\n" + std::string(kIndent, ' ') : key.name, kIndent - 2,
                     wrapped(help, kIndent));
}

std::string heading(const std::string& group) {
  const std::string title = title_of(group);
  return fmt::format("{}{}\n", group, title.empty() ? "" : ": " + title);
}

}  // namespace

const std::vector<std::string>& config_groups() {
  static const std::vector<std::string> kGroups = [] {
    std::vector<std::string> groups;
    for (const ConfigKey& key : config_keys()) {
      const std::string group = group_of(key);
      if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
    }
    return groups;
  }();
  return kGroups;
}

std::string config_help() {
  std::string text;
  for (const std::string& group : config_groups()) {
    text += (text.empty() ? "" : "\n") + heading(group);
    for (const ConfigKey& key : config_keys())
      if (group_of(key) == group) text += in_short(key);
  }
  return text;
}

std::string config_help(const std::string& topic) {
  if (const ConfigKey* key = find_config_key(topic)) return in_detail(*key);
  std::string text;
  for (const ConfigKey& key : config_keys())
    if (group_of(key) == topic) text += in_detail(key);
  return text.empty() ? "" : heading(topic) + text;
}

}  // namespace megatrain
