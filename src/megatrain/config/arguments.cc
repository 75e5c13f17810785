#include "megatrain/config/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/nearest_name.h"
#include "megatrain/config/config.h"
#include "megatrain/config/config_keys.h"

namespace megatrain {

namespace {

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// "--optim.lr 1e-4": whether the next word is the key's value. A flag may stand alone, so only words it accepts count
// as its value. For another trainer's key, every word that does not begin with "--" counts.
bool is_value_of(const ConfigKey* key, const std::string& word) {
  TrainConfig ignored;
  return key ? !key->flag || key->read(ignored, {.text = word}) : word.rfind("--", 0) != 0;
}

// The option, flag or key with the nearest spelling; empty if none is close.
std::string nearest_option(const Verb& verb, const std::string& written) {
  NearestName nearest(written, most_typing_errors(written.substr(std::min<size_t>(2, written.size()))));
  for (const std::vector<std::string>& list : {verb.options, verb.flags, {"--json", "--help"}}) {
    for (const std::string& known : list)
      if (known != written) nearest.consider(known);
  }
  if (!nearest.found().empty() || !verb.keys) return nearest.found();
  const std::string key = nearest_config_key(written.substr(written.rfind("--", 0) == 0 ? 2 : 1));
  return key.empty() || "--" + key == written ? "" : "--" + key;
}

}  // namespace

std::string Verb::help() const {
  std::string text = "megatrain " + name;
  for (const std::string& part : {takes, usage}) text += part.empty() ? "" : " " + part;
  return text + " [--json]\n\n" + details;
}

Arguments::Arguments(const Words& words, const Verb& verb, std::string program)
    : program_(std::move(program)), verb_(verb.name) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.size() < 2 || word[0] != '-') {
      plain_.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (word == "--json" || contains(verb.flags, word)) {
      flags_.push_back(word);
    } else if (contains(verb.options, name)) {
      if (equals == std::string::npos && (i + 1 == words.size() || words[i + 1].starts_with("--")))
        fail_config(fmt::format("{} needs a value, {} follows; write '{}=VALUE'; 'megatrain {} --help' says more", name,
                                i + 1 == words.size() ? "and nothing" : fmt::format("but '{}'", words[i + 1]), name,
                                verb_));
      options_.emplace_back(name, equals == std::string::npos ? words[++i] : word.substr(equals + 1));
    } else if (is_config_override(word)) {
      overrides_.push_back(word);
      if (equals == std::string::npos && i + 1 < words.size() &&
          is_value_of(find_config_key(name.substr(2)), words[i + 1]))
        overrides_.push_back(words[++i]);
    } else {
      const std::string near = nearest_option(verb, name);
      fail_config(fmt::format("'{}' is not an option of 'megatrain {}'{}{}; see 'megatrain {} --help'", name, verb_,
                              verb.keys ? " and no configuration key" : "",
                              near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near), verb_));
    }
  }
  if (!verb.keys && !overrides_.empty()) {
    fail_config(fmt::format("'{}' is a key of training, which 'megatrain {}' does not use; see 'megatrain {} --help'",
                            overrides_.front(), verb_, verb_));
  }
}

bool Arguments::flag(const std::string& name) const { return contains(flags_, name); }

bool Arguments::overrides(const std::string& key) const {
  return std::any_of(overrides_.begin(), overrides_.end(),
                     [&](const std::string& word) { return word == "--" + key || word.starts_with("--" + key + "="); });
}

std::optional<std::string> Arguments::option(const std::string& name) const {
  for (auto it = options_.rbegin(); it != options_.rend(); ++it) {
    if (it->first == name) return it->second;
  }
  return {};
}

std::vector<std::string> Arguments::all(const std::string& name) const {
  std::vector<std::string> values;
  for (const auto& [option, value] : options_) {
    if (option == name) values.push_back(value);
  }
  return values;
}

std::optional<double> Arguments::number(const std::string& name) const {
  const std::optional<std::string> text = option(name);
  if (!text) return {};
  double value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || !std::isfinite(value))
    fail_config(fmt::format("{} is '{}'; expected a number", name, *text));
  return value;
}

std::optional<int64_t> Arguments::integer(const std::string& name) const {
  const std::optional<std::string> text = option(name);
  if (!text) return {};
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size())
    fail_config(fmt::format("{} is '{}'; expected a whole number", name, *text));
  return value;
}

const std::string& Arguments::one(const std::string& what) const {
  for (const std::string& word : plain_) {
    if (word.find('=') != std::string::npos && is_config_override("--" + word))
      fail_config(fmt::format("'{0}' has no dashes; did you mean '--{0}'?", word));
  }
  if (plain_.size() != 1) {
    fail_config(fmt::format("'megatrain {}' takes one {}, {} given; see 'megatrain {} --help'", verb_, what,
                            plain_.empty() ? "none was" : fmt::format("{} were", plain_.size()), verb_));
  }
  return plain_.front();
}

void Arguments::none() const {
  if (!plain_.empty())
    fail_config(fmt::format("'megatrain {}' takes no '{}'; see 'megatrain {} --help'", verb_, plain_.front(), verb_));
}

}  // namespace megatrain
