#include "megatrain/cli/completion.h"

#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/shell_word.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/config_help.h"
#include "megatrain/config/config_keys.h"
#include "megatrain/machine/machines.h"
#include "megatrain/model/presets.h"

namespace megatrain {

namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

bool is_word_of_its_own(const std::string& text) {
  return !text.empty() && std::none_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

// Reads placeholders such as "bf16|fp32", "MODEL|RUN" and "FILE.html"; lower-case words are literal.
void add_placeholder(const std::string& text, Completed& completed) {
  for (const std::string& part : split(text, '|')) {
    if (is_word_of_its_own(part)) {
      if (part != "...") completed.words.push_back(part);
    } else if (part.starts_with("CONFIG")) {
      completed.configurations = true;
    } else if (part == "PRESET") {
      for (const std::string& preset : preset_names()) completed.words.push_back(preset);
    } else if (part == "MODEL" || part == "RUN" || part == "DIR") {
      completed.directories = true;
    } else if (part.starts_with("FILE")) {
      completed.files = true;
    } else if (part == "X") {  // the X of bench: whatever `plan` accepts
      add_placeholder("CONFIG|DIR|PRESET", completed);
    }
  }
}

std::vector<std::string> first_words() {
  std::vector<std::string> words;
  for (const Verb& verb : verbs()) {
    const std::string first = verb.name.substr(0, verb.name.find(' '));
    if (std::find(words.begin(), words.end(), first) == words.end()) words.push_back(first);
  }
  words.emplace_back("help");
  return words;
}

std::vector<std::string> second_words(const std::string& first) {
  std::vector<std::string> words;
  for (const Verb& verb : verbs())
    if (verb.name.starts_with(first + " ")) words.push_back(verb.name.substr(first.size() + 1));
  return words;
}

std::vector<std::string> options_of(const Verb& verb) {
  std::vector<std::string> words = verb.options;
  words.insert(words.end(), verb.flags.begin(), verb.flags.end());
  words.insert(words.end(), {"--json", "--help"});
  return words;
}

// A line of bash that fills COMPREPLY, or nothing.
std::string bash_reply(const Completed& completed) {
  std::string text;
  if (!completed.words.empty())
    text += fmt::format(" _megatrain_words {};", shell_word(fmt::format("{}", fmt::join(completed.words, " "))));
  if (completed.configurations) text += " _megatrain_paths '*.yaml' '*.yml';";
  if (completed.files) text += " _megatrain_paths '*';";
  if (completed.directories && !completed.files && !completed.configurations) text += " _megatrain_paths;";
  return text.empty() ? " :;" : text;
}

constexpr const char* kBashBegin = R"(# Completion of megatrain in bash, made by 'megatrain completion bash'.
# shellcheck shell=bash disable=SC2034

# Adds the words that begin with what is typed.
_megatrain_words() {
  local word
  for word in $1; do
    if [[ $word == "$_megatrain_typed"* ]]; then COMPREPLY+=("$_megatrain_before$word"); fi
  done
}

# Adds folders, and files that match a pattern.
_megatrain_paths() {
  local path shown pattern
  compopt -o filenames 2>/dev/null
  while IFS= read -r path; do
    shown=$_megatrain_before$path
    if [[ -d $path ]]; then
      COMPREPLY+=("$shown")
    else
      for pattern in "$@"; do
        # shellcheck disable=SC2053
        if [[ $path == $pattern ]]; then COMPREPLY+=("$shown"); fi
      done
    fi
  done < <(compgen -f -- "$_megatrain_typed")
}

)";

// Splits the line again, because bash also splits words at '='.
constexpr const char* kBashEnd = R"(
_megatrain() {
  local line verb rest=1 name
  local -a words
  local _megatrain_typed='' _megatrain_before=''
  COMPREPLY=()
  if [[ -n ${ZSH_VERSION-} ]]; then # through bashcompinit
    emulate -L ksh
    line=${COMP_LINE:0:$COMP_POINT}
    read -rA words <<<"$line"
  else
    line=${COMP_LINE:0:$COMP_POINT}
    read -ra words <<<"$line"
  fi
  if [[ $line != *[[:space:]] ]]; then
    _megatrain_typed=${words[${#words[@]} - 1]}
    words=("${words[@]:0:${#words[@]}-1}")
  fi
  verb=${words[1]-}
  if [[ $verb == help ]]; then
    verb=''
    words=("${words[@]:1}")
    rest=2
  fi
  if [[ ${#words[@]} -le 1 ]]; then
    if [[ $_megatrain_typed == -* ]]; then
      _megatrain_words '--help --version'
    elif [[ $rest == 1 ]]; then
      _megatrain_words "$_megatrain_verbs"
    else
      _megatrain_words "${_megatrain_verbs% help}"
    fi
    return
  fi
  if [[ -z $verb ]]; then # help VERB [GROUP]
    if [[ ${#words[@]} -eq 2 ]] && _megatrain_takes_keys "${words[1]}"; then _megatrain_words "$_megatrain_groups"; fi
    return
  fi
  if [[ ${#words[@]} -gt 2 ]] && _megatrain_is_verb "$verb ${words[2]}"; then
    verb="$verb ${words[2]}"
  fi
  name=${words[${#words[@]} - 1]}
  if [[ $_megatrain_typed == -*=* ]]; then # --key=val
    name=${_megatrain_typed%%=*}
    _megatrain_typed=${_megatrain_typed#*=}
    if [[ ${COMP_WORDBREAKS-} != *=* ]]; then _megatrain_before=$name=; fi
    _megatrain_option "$verb" "$name" || { _megatrain_takes_keys "$verb" && _megatrain_key "${name#--}"; }
    return
  fi
  if [[ $name == --help || $name == -h ]] && _megatrain_takes_keys "$verb"; then
    _megatrain_words "$_megatrain_groups"
    return
  fi
  if [[ $name == -* && $_megatrain_typed != -* ]]; then # --key val
    if _megatrain_option "$verb" "$name"; then return; fi
    if _megatrain_takes_keys "$verb" && _megatrain_key "${name#--}"; then return; fi
  fi
  if [[ $_megatrain_typed == -* ]]; then
    _megatrain_options "$verb"
    if _megatrain_takes_keys "$verb"; then _megatrain_words "$_megatrain_keys"; fi
    if [[ -n ${ZSH_VERSION-} ]]; then # which adds a space: '--key value'
      COMPREPLY=("${COMPREPLY[@]%=}")
    elif [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
      compopt -o nospace 2>/dev/null
    fi
    return
  fi
  _megatrain_arguments "$verb"
}
complete -F _megatrain megatrain ./megatrain
)";

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

Completed completed_arguments(const Verb& verb) {
  Completed completed;
  completed.words = second_words(verb.name);
  for (const std::string& part : split(verb.takes, ' ')) {
    if (part.starts_with("-")) break;  // the rest is the option's value
    add_placeholder(part, completed);
  }
  return completed;
}

Completed completed_option(const Verb& verb, const std::string& option) {
  Completed completed;
  // Parses usage such as "[--dtype bf16|fp32]" and "--out DIR".
  std::string usage = verb.takes + " " + verb.usage;
  std::replace_if(
      usage.begin(), usage.end(), [](char c) { return c == '[' || c == ']' || c == '\n'; }, ' ');
  std::istringstream words(usage);
  for (std::string word, value; words >> word;) {
    if (word != option || !(words >> value)) continue;
    add_placeholder(value, completed);
    break;
  }
  if (option == "--machine")
    for (const MachineProfile& machine : named_machines()) completed.words.push_back(machine.name);
  return completed.nothing() ? completed_key(option.substr(option.find_first_not_of('-'))) : completed;
}

Completed completed_key(const std::string& name) {
  Completed completed;
  const ConfigKey* key = find_config_key(name);
  if (!key) return completed;
  completed.words = key->choices;
  completed.files = key->path;
  return completed;
}

std::string bash_completion() {
  std::vector<std::string> keys;
  for (const ConfigKey& key : config_keys()) keys.push_back("--" + key.name + (key.flag ? "" : "="));
  std::string text = kBashBegin;
  text += fmt::format("_megatrain_verbs='{}'\n", fmt::join(first_words(), " "));
  text += fmt::format("_megatrain_groups='{}'\n", fmt::join(config_groups(), " "));
  text += fmt::format("_megatrain_keys='{}'\n\n", fmt::join(keys, " "));

  std::vector<std::string> two, keyed;
  for (const Verb& verb : verbs()) {
    if (verb.name.find(' ') != std::string::npos) two.push_back(fmt::format("'{}'", verb.name));
    if (verb.keys) keyed.push_back(fmt::format("'{}'", verb.name));
  }
  text +=
      fmt::format("_megatrain_is_verb() {{\n  case $1 in {}) ;; *) return 1 ;; esac\n}}\n\n", fmt::join(two, " | "));
  text += fmt::format("_megatrain_takes_keys() {{\n  case $1 in {}) ;; *) return 1 ;; esac\n}}\n\n",
                      fmt::join(keyed, " | "));

  text += "_megatrain_options() {\n  case $1 in\n";
  for (const Verb& verb : verbs())
    text += fmt::format("    '{}') _megatrain_words '{}' ;;\n", verb.name, fmt::join(options_of(verb), " "));
  text += "  esac\n}\n\n_megatrain_arguments() {\n  case $1 in\n";
  for (const Verb& verb : verbs())
    text += fmt::format("    '{}'){};\n", verb.name, bash_reply(completed_arguments(verb)));
  // a first word alone is completed by its second words
  for (const std::string& first : first_words()) {
    const bool known =
        std::any_of(verbs().begin(), verbs().end(), [&](const Verb& verb) { return verb.name == first; });
    if (!known && !second_words(first).empty())
      text += fmt::format("    '{}') _megatrain_words '{}' ;;\n", first, fmt::join(second_words(first), " "));
  }
  text +=
      "  esac\n}\n\n# Fails unless $2 is an option of the command $1 that takes a value.\n_megatrain_option() {\n  "
      "case \"$1 $2\" "
      "in\n";
  for (const Verb& verb : verbs()) {
    for (const std::string& option : verb.options)
      text += fmt::format("    '{} {}'){};\n", verb.name, option, bash_reply(completed_option(verb, option)));
  }
  text +=
      "    *) return 1 ;;\n  esac\n}\n\n# Fails unless $1 is a key that needs a value.\n_megatrain_key() {\n  case $1 "
      "in\n";
  for (const ConfigKey& key : config_keys()) {
    if (key.flag) continue;
    text += fmt::format("    {}){};\n", key.name, bash_reply(completed_key(key.name)));
  }
  text += "    *) return 1 ;;\n  esac\n}\n";
  return text + kBashEnd;
}

std::string zsh_completion() {
  return "#compdef megatrain\n# Completion of megatrain in zsh: source it after compinit, or have it as _megatrain in "
         "fpath.\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash_completion() +
         // When the script is autoloaded from fpath, zsh runs all of it at the first completion, so it must also do
         // that one.
         "if [[ ${funcstack[1]-} == _megatrain ]]; then _bash_complete -F _megatrain; fi\n";
}

std::string fish_completion() {
  std::string text = "# Completion of megatrain in fish, made by 'megatrain completion fish'.\n";
  const auto line = [&](const std::string& rest) { text += "complete -c megatrain " + rest + "\n"; };
  const auto value = [](const Completed& completed) {
    if (!completed.words.empty())
      return fmt::format(" -x -a {}", shell_word(fmt::format("{}", fmt::join(completed.words, " "))));
    return std::string(completed.files || completed.directories || completed.configurations ? " -r" : " -x");
  };
  std::map<std::string, std::string> summaries;
  for (const Verb& verb : verbs()) {
    const std::string first = verb.name.substr(0, verb.name.find(' '));
    if (verb.name == first || !summaries.contains(first)) summaries[first] = one_line(verb.summary);
  }
  for (const auto& [verb, summary] : summaries)
    line(fmt::format("-f -n __fish_use_subcommand -a {}{}", verb, summary.empty() ? "" : " -d " + shell_word(summary)));
  for (const Verb& verb : verbs()) {
    const std::string first = verb.name.substr(0, verb.name.find(' '));
    const std::string seen = fmt::format("-n '__fish_seen_subcommand_from {}' ", first);
    if (verb.name != first) line(fmt::format("-f {}-a {}", seen, verb.name.substr(first.size() + 1)));
    for (const std::string& word : options_of(verb)) {
      const bool takes = std::find(verb.options.begin(), verb.options.end(), word) != verb.options.end();
      line(fmt::format("{}{} {}{}", seen, word.starts_with("--") ? "-l" : "-s",
                       word.substr(word.find_first_not_of('-')), takes ? value(completed_option(verb, word)) : ""));
    }
    if (!verb.keys) continue;
    for (const ConfigKey& key : config_keys())
      line(fmt::format("{}-l {}{} -d {}", seen, key.name, key.flag ? "" : value(completed_key(key.name)),
                       shell_word(one_line(key.help))));
  }
  return text;
}

int verb_completion(const Arguments& arguments) {
  const std::string& shell = arguments.one("bash, zsh or fish");
  if (arguments.json())
    fail_config("'megatrain completion' prints a script, which has no form in JSON; leave --json out");
  const std::string text = shell == "bash"   ? bash_completion()
                           : shell == "zsh"  ? zsh_completion()
                           : shell == "fish" ? fish_completion()
                                             : "";
  if (text.empty()) fail_config(fmt::format("there is no completion for '{}'; expected bash, zsh or fish", shell));
  print_text(text);
  return 0;
}

}  // namespace megatrain
