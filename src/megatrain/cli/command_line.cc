#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/nearest_name.h"
#include "megatrain/base/shortage.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/config.h"
#include "megatrain/config/config_help.h"
#include "megatrain/config/config_keys.h"

namespace megatrain {

namespace {

constexpr const char* kAbout =
    R"(megatrain trains and fine-tunes large language models at full precision on one GPU: parameters and
optimizer state live in host memory, and layers stream through the device.

)";

constexpr const char* kMore =
    R"(
'megatrain VERB --help' says more. Results go to standard output (as JSON with --json), logs to standard error.
Exit codes: 0 done, 1 internal error, 2 bad config or usage, 3 bad model or data file, 4 cannot fit, 5 I/O or disk,
6 non-finite, 7 corrupt checkpoint, 8 stalled, 129/130/143 stopped by a signal after a durable save.
)";

bool is_help(const std::string& word) { return word == "--help" || word == "-h"; }

std::string help() {
  std::vector<std::pair<std::string, std::string>> lines;
  size_t width = 0;
  for (const Verb& verb : verbs()) {
    if (verb.summary.empty()) continue;
    lines.emplace_back(verb.name + " " + verb.takes, verb.summary);
    width = std::max(width, lines.back().first.size());
  }
  std::string text = kAbout;
  for (const auto& [typed, summary] : lines) text += fmt::format("  megatrain {:<{}} {}\n", typed, width, summary);
  return text + kMore;
}

// The two-word verbs whose first word this is.
std::vector<const Verb*> verbs_behind(const std::string& word) {
  std::vector<const Verb*> found;
  for (const Verb& verb : verbs()) {
    if (verb.name.starts_with(word + " ")) found.push_back(&verb);
  }
  return found;
}

// The verb that `words` begin with, preferring a two-word verb; nullptr if there is none.
const Verb* find_verb(const Words& words) {
  const Verb* found = nullptr;
  for (const Verb& verb : verbs()) {
    if (words.size() > 1 && verb.name == words[0] + " " + words[1]) return &verb;
    if (verb.name == words[0]) found = &verb;
  }
  return found;
}

std::ptrdiff_t words_of(const Verb& verb) { return 1 + std::count(verb.name.begin(), verb.name.end(), ' '); }

// Suggests "train" for "trian"; empty when no verb is close.
std::string nearest_verb(const std::string& written) {
  NearestName nearest(written);
  for (const Verb& verb : verbs()) nearest.consider(verb.name.substr(0, verb.name.find(' ')));
  return nearest.found();
}

// Commands of other programs, and ours for them.
struct OtherVerb {
  const char *name, *ours;
};
constexpr OtherVerb kOtherVerbs[] = {
    {"finetune", "train CONFIG.yaml"},
    {"fine-tune", "train CONFIG.yaml"},
    {"sft", "train CONFIG.yaml"},
    {"pretrain", "train CONFIG.yaml"},
    {"fit", "train CONFIG.yaml"},
    {"resume", "train CONFIG.yaml --resume"},
    {"continue", "train CONFIG.yaml --resume"},
    {"lora", "train CONFIG.yaml --adapter.rank=16"},
    {"infer", "generate MODEL --prompt TEXT"},
    {"inference", "generate MODEL --prompt TEXT"},
    {"evaluate", "eval MODEL FILE"},
    {"test", "eval MODEL FILE"},
    {"quantize", "export RUN --gguf q8_0 --out FILE.gguf"},
    {"convert", "export RUN --gguf bf16 --out FILE.gguf"},
    {"tokenize", "prepare CONFIG.yaml"},
    {"preprocess", "prepare CONFIG.yaml"},
    {"benchmark", "bench step MODEL"},
    {"estimate", "plan MODEL"},
    {"api", "serve MODEL"},
    {"status", "watch RUN"},
};

[[noreturn]] void refuse_verb(const std::string& word) {
  if (word.ends_with(".yaml") || word.ends_with(".yml"))
    fail_config(fmt::format("unknown command '{0}'; to train with it, write 'megatrain train {0}'", word));
  for (const OtherVerb& other : kOtherVerbs) {
    if (word == other.name) fail_config(fmt::format("unknown command '{}'; write 'megatrain {}'", word, other.ours));
  }
  const std::string near = nearest_verb(word);
  fail_config(fmt::format("unknown command '{}'{}; 'megatrain --help' lists the commands", word,
                          near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)));
}

// Help on a topic, as in 'megatrain train --help optim': a group of keys or one key.
std::string help_about(const Verb& verb, const std::string& topic) {
  if (!verb.keys) fail_config(fmt::format("'megatrain {} --help' takes no argument, '{}' was given", verb.name, topic));
  std::string name = topic.substr(std::min(topic.find_first_not_of('-'), topic.size()));
  name = name.substr(0, name.find('='));
  const std::string text = config_help(name);
  if (!text.empty()) return text;
  const std::string near = nearest_config_key(name);
  fail_config(fmt::format("'{}' is neither a group of keys nor a key{}; groups are {}", topic,
                          near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near),
                          fmt::join(config_groups(), ", ")));
}

// For a first word that is not a verb by itself: shows the help of the two-word verbs it begins, or fails naming them.
int without_verb(const Words& words) {
  const std::vector<const Verb*> behind = verbs_behind(words[0]);
  if (behind.empty()) refuse_verb(words[0]);
  if (words.size() > 1 && is_help(words[1])) {
    std::string text;
    for (const Verb* verb : behind) text += (text.empty() ? "" : "\n") + verb->help();
    print_text(text);
    return 0;
  }
  std::vector<std::string> seconds;
  for (const Verb* verb : behind) seconds.push_back(verb->name.substr(words[0].size() + 1));
  fail_config(fmt::format("'megatrain {}' takes one of {}, {} given; see 'megatrain {} --help'", words[0],
                          fmt::join(seconds, ", "), words.size() < 2 ? "none was" : fmt::format("'{}' was", words[1]),
                          words[0]));
}

[[noreturn]] void nothing_behind(const Words& words) {
  fail_config(fmt::format("'megatrain {}' takes no argument, '{}' was given", words[0], words[1]));
}

int dispatch(const Words& words, const std::string& program) {
  if (words.size() > 1 && words[0] == "help" && !is_help(words[1])) {  // help VERB is VERB --help
    Words turned(words.begin() + 1, words.end());
    const Verb* verb = find_verb(turned);
    turned.insert(turned.begin() + (verb ? words_of(*verb) : std::ssize(turned)), "--help");
    return dispatch(turned, program);
  }
  if (words.empty() || is_help(words[0]) || words[0] == "help") {
    if (words.size() > 2 || (words.size() == 2 && !is_help(words[1]))) nothing_behind(words);
    print_text(help());
    return words.empty() ? static_cast<int>(ExitCode::bad_config) : 0;
  }
  if (words[0] == "--version") {
    if (words.size() > 1) nothing_behind(words);
    print_text(version_text());
    return 0;
  }
  const Verb* verb = find_verb(words);
  if (!verb) return without_verb(words);
  const Words rest(words.begin() + words_of(*verb), words.end());
  if (const auto asked = std::find_if(rest.begin(), rest.end(), is_help); asked != rest.end()) {
    std::string topic = asked + 1 == rest.end() ? "" : *(asked + 1);
    if (topic.starts_with("-") && !is_config_override(topic)) topic.clear();  // it is an option, as in '--help --json'
    print_text(topic.empty() ? verb->help() : help_about(*verb, topic));
    return 0;
  }
  return verb->run(Arguments(rest, *verb, program));
}

int result_lost(int why) {
  say_error(fmt::format("the result could not be written to standard output: {}", std::strerror(why)));
  return static_cast<int>(ExitCode::io);
}

}  // namespace

int run_command_line(const Words& words, const std::string& program) {
  try {
    const int code = dispatch(words, program);
    if (std::fflush(stdout) != 0 && code == 0) return result_lost(errno);
    return code;
  } catch (const std::exception& error) {
    const bool ours = dynamic_cast<const Error*>(&error) != nullptr;
    if (!ours && std::ferror(stdout)) return result_lost(errno);
    const Error said = as_error(error);
    say_error(said.what());
    return static_cast<int>(said.code());
  }
}

}  // namespace megatrain
