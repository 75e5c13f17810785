#include "megatrain/config/overrides.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/config/config_keys.h"
#include "megatrain/config/config_text.h"
#include "megatrain/foreign/foreign_yaml.h"

namespace megatrain {
namespace {

// "key" from "--key" or "--key=value".
std::string name_of(const std::string& word) {
  const size_t equals = word.find('=');
  return word.substr(2, equals == std::string::npos ? equals : equals - 2);
}

bool is_option(const std::string& word) { return word.compare(0, 2, "--") == 0; }

// Refuses a key that belongs to another trainer than the file's.
void refuse_of_another(const GivenKeys& given, const std::string& key) {
  const ForeignTrainer* owner = trainer_with_key(known_foreign_name(key));
  if (!owner) return;
  fail_config(fmt::format("--{} is a key of {}, and {} is {}; `megatrain train --help` lists the keys", key,
                          owner->name, given.file,
                          given.theirs ? fmt::format("a file of {}", given.trainer->name) : "megatrain's own"));
}

// Stands for any key of another trainer, of which only the name is known.
const ConfigKey& any_foreign_key() {
  static const ConfigKey key{.accepts = "its value"};
  return key;
}

}  // namespace

void read_overrides(const std::vector<std::string>& words, GivenKeys& given) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].size() < 3 || !is_option(words[i]))
      fail_config(fmt::format("'{}' on the command line is not understood, expected --key=value", words[i]));
    const size_t equals = words[i].find('=');
    std::string name = name_of(words[i]);
    const std::string theirs = known_foreign_name(name);
    const bool foreign = is_key_of(*given.trainer, theirs);
    if (!foreign && name == "model") name = "model.path";
    if (!foreign && !find_config_key(name)) refuse_of_another(given, name);
    const std::string origin = "--" + name;
    const ConfigKey& key = foreign ? any_foreign_key() : known_config_key(origin, name);
    std::string text;
    if (equals != std::string::npos)
      text = words[i].substr(equals + 1);
    else if (i + 1 < words.size() && !is_option(words[i + 1]))
      text = words[++i];
    else if (key.flag)
      text = "true";
    else
      fail_config(fmt::format("--{} needs a value: expected {}", name, key.accepts));
    const bool null = text == "null" || text == "~";
    if (!foreign)
      given.own[name] = {null ? ConfigText{.text = text, .null = true} : config_text_of_word(origin, key, text), origin,
                         true};
    else if (null)
      given.foreign[theirs] = {{.text = "", .where = origin, .null = true}, true};
    else
      given.foreign[theirs] = {read_foreign_text(*given.trainer, given.file, origin, theirs, text), true};
  }
}

bool is_config_override(const std::string& word) {
  if (!is_option(word)) return false;
  const std::string name = name_of(word);
  return find_config_key(name) != nullptr || name == "model" || trainer_with_key(known_foreign_name(name)) != nullptr;
}

}  // namespace megatrain
