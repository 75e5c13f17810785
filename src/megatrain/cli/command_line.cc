#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"

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

// Verbs of two words that begin with this one.
std::vector<const Verb*> verbs_behind(const std::string& word) {
  std::vector<const Verb*> found;
  for (const Verb& verb : verbs()) {
    if (verb.name.starts_with(word + " ")) found.push_back(&verb);
  }
  return found;
}

// The verb that `words` begin with, one of two words first; nullptr: none.
const Verb* find_verb(const Words& words) {
  const Verb* found = nullptr;
  for (const Verb& verb : verbs()) {
    if (words.size() > 1 && verb.name == words[0] + " " + words[1]) return &verb;
    if (verb.name == words[0]) found = &verb;
  }
  return found;
}

// For a first word that is no verb by itself: the help of those that begin with it, or an error that names them.
int without_verb(const Words& words) {
  const std::vector<const Verb*> behind = verbs_behind(words[0]);
  if (behind.empty())
    fail_config(fmt::format("'{}' is not a verb of megatrain; 'megatrain --help' lists them", words[0]));
  if (words.size() > 1 && is_help(words[1])) {
    std::string text;
    for (const Verb* verb : behind) text += (text.empty() ? "" : "\n") + verb->help();
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  std::vector<std::string> seconds;
  for (const Verb* verb : behind) seconds.push_back(verb->name.substr(words[0].size() + 1));
  fail_config(fmt::format("'megatrain {}' takes one of {}, {} given; see 'megatrain {} --help'", words[0],
                          fmt::join(seconds, ", "), words.size() < 2 ? "none was" : fmt::format("'{}' was", words[1]),
                          words[0]));
}

[[noreturn]] void nothing_behind(const Words& words) {
  fail_config(fmt::format("'megatrain {}' takes nothing behind it, '{}' was given", words[0], words[1]));
}

int dispatch(const Words& words) {
  if (words.size() > 1 && words[0] == "help") {  // help VERB is VERB --help
    Words turned(words.begin() + 1, words.end());
    turned.emplace_back("--help");
    return dispatch(turned);
  }
  if (words.empty() || is_help(words[0]) || words[0] == "help") {
    if (words.size() > 1) nothing_behind(words);
    std::fputs(help().c_str(), stdout);
    return words.empty() ? static_cast<int>(ExitCode::bad_config) : 0;
  }
  if (words[0] == "--version") {
    if (words.size() > 1) nothing_behind(words);
    std::fputs(version_text().c_str(), stdout);
    return 0;
  }
  const Verb* verb = find_verb(words);
  if (!verb) return without_verb(words);
  const Words rest(words.begin() + 1 + std::count(verb->name.begin(), verb->name.end(), ' '), words.end());
  if (std::any_of(rest.begin(), rest.end(), is_help)) {
    std::fputs(verb->help().c_str(), stdout);
    return 0;
  }
  return verb->run(Arguments(rest, *verb));
}

int result_lost(int why) {
  say_error(fmt::format("the result could not be written to standard output: {}", std::strerror(why)));
  return static_cast<int>(ExitCode::io);
}

}  // namespace

int run_command_line(const Words& words) {
  try {
    const int code = dispatch(words);
    if (std::fflush(stdout) != 0 && code == 0) return result_lost(errno);
    return code;
  } catch (const Error& error) {
    say_error(error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    say_error("out of host memory; lower memory.host or the batch");
    return static_cast<int>(ExitCode::cannot_fit);
  } catch (const std::exception& error) {
    if (std::ferror(stdout)) return result_lost(errno);
    say_error(fmt::format("internal error: {}; please report this with the command that led to it", error.what()));
    return static_cast<int>(ExitCode::internal);
  }
}

}  // namespace megatrain
