#include "megatrain/config/config.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/config/adapter_file.h"
#include "megatrain/config/config_checks.h"
#include "megatrain/config/config_file.h"
#include "megatrain/config/config_keys.h"
#include "megatrain/config/idle_keys.h"
#include "megatrain/config/overrides.h"
#include "megatrain/config/prepared_keys.h"
#include "megatrain/config/problems.h"
#include "megatrain/config/translated_keys.h"
#include "megatrain/config/unknown_keys.h"

namespace megatrain {
namespace {

[[noreturn]] void fail_value(const ConfigKey& key, const std::string& name, const GivenKey& given) {
  if (const std::string problem = key.problem ? key.problem(given.value) : ""; !problem.empty())
    fail_config(fmt::format("{}: {}: {}", given.origin, name, problem));
  fail_config(fmt::format("{}: {} is {}, expected {}", given.origin, name,
                          given.value.null            ? "null"
                          : given.value.items.empty() ? "'" + given.value.text + "'"
                                                      : "a list with something else",
                          key.accepts));
}

// The values of the given keys, read in the order of the key table. All other fields keep their defaults, as those do
// whose values are wrong.
TrainConfig read_values(const GivenKeys& given, Problems& problems) {
  TrainConfig config;
  for (const ConfigKey& key : config_keys()) {
    const auto found = given.own.find(key.name);
    if (found == given.own.end() || key.read(config, found->second.value)) continue;
    problems.of([&] { fail_value(key, given.names(key.name), found->second); });
    const std::string standard = key.write(TrainConfig{});
    key.read(config, {.text = standard, .null = standard == "null"});
  }
  return config;
}

// The largest number of sequences that divides the batch without exceeding the tokens that large GEMMs need.
int64_t default_micro_batch(int64_t batch, int64_t seq_len) {
  constexpr int64_t kTokens = 8192;
  int64_t most = 1;
  for (int64_t n = 1; n <= std::min(batch, kTokens / seq_len); ++n) {
    if (batch % n == 0) most = n;
  }
  return most;
}

// Any key of the adapter asks for one, as a LoraConfig does.
void settle_adapter_rank(TrainConfig& config, const GivenKeys& given) {
  constexpr int64_t kRank = 8;
  const bool any = std::ranges::any_of(
      given.own, [&](const auto& key) { return key.first.starts_with("adapter.") && given.has_value(key.first); });
  if (any && !given.has("adapter.rank")) config.adapter.rank = kRank;
}

// Adapters train with about ten times the rate of full training.
void settle_adapter_learning_rate(TrainConfig& config, const GivenKeys& given) {
  constexpr double kRate = 1e-4;
  if (config.adapter.rank > 0 && !given.has("optim.lr")) config.optim.lr = kRate;
}

void finish_dumps(TrainConfig& config, const GivenKeys& given) {
  TrainConfig::Dump& dump = config.dump;
  if (!dump.steps.empty() && !given.has("dump.grads") && !given.has("dump.state")) dump.grads = dump.state = dump.steps;
  if (dump.grads.contains(0)) {
    if (dump.grads != dump.steps)
      fail_config(
          fmt::format("{}: dump.grads names step 0, but gradients exist from step 1 on", given.origin("dump.grads")));
    auto& first = dump.grads.ranges.front();
    if (++first.first > first.second) dump.grads.ranges.erase(dump.grads.ranges.begin());
  }
  for (const auto& [name, steps] :
       {std::pair{"dump.steps", &dump.steps}, {"dump.grads", &dump.grads}, {"dump.state", &dump.state}})
    if (given.has_value("steps") && !steps->ranges.empty() && steps->ranges.back().second > config.steps)
      fail_config(fmt::format("{}: {} names step {}, but the run has {}", given.origin(name), name,
                              steps->ranges.back().second, counted(config.steps, "step")));
}

}  // namespace

TrainConfig parse_config(const std::string& text, const std::string& name, const std::vector<std::string>& overrides,
                         const ConfigNeeds& needs) {
  GivenKeys given{.file = name};
  read_config_file(text, given);
  read_overrides(overrides, given);
  std::vector<std::string> of_file = given.problems;
  const std::vector<Translation> translations = take_foreign_keys(given, of_file);
  if (!given.unknown.empty()) of_file.push_back(unknown_sentence(given));
  Problems problems(std::move(of_file));
  TrainConfig config = read_values(given, problems);
  config.names = given.names;
  config.stage = given.stage;
  problems.refuse();  // what seems to be missing or to contradict may stand under a wrong name or have a wrong value
  problems.of([&] {
    settle_adapter_rank(config, given);
    settle_adapter_keys(config, given);
    settle_adapter_learning_rate(config, given);
  });
  check_presence(config, given, needs, problems);
  problems.refuse();
  if (needs.data) settle_prepared_keys(config, given);  // before anything that depends on seq_len
  if (!given.has("micro_batch")) config.micro_batch = default_micro_batch(config.batch, config.seq_len);
  check_sizes(config, given, problems);
  problems.of([&] { finish_dumps(config, given); });
  problems.refuse();
  if (!needs.idle) settle_idle_keys(config, given);
  if (!config.data.tokens.empty()) config.data.shuffle = false;
  if (!translations.empty()) show_translations(translations, given, config);
  return config;
}

TrainConfig load_config(const std::string& path, const std::vector<std::string>& overrides, const ConfigNeeds& needs) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    fail_config(
        fmt::format("{} is a directory, expected a YAML configuration file; a model is named in one, as "
                    "model.path",
                    path));
  errno = 0;
  std::ifstream file(path, std::ios::binary);  // read in pieces: it may be a pipe
  std::string text;
  std::array<char, 1 << 16> piece;
  while (file.read(piece.data(), piece.size()), file.gcount() > 0)
    text.append(piece.data(), static_cast<size_t>(file.gcount()));
  if (!file.is_open() || file.bad()) {
    const int error = errno != 0 ? errno : EIO;
    const bool absent = !file.is_open() && (error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG);
    fail(absent ? ExitCode::bad_config : ExitCode::io,
         fmt::format("cannot read the configuration {}: {}; {}", path, std::strerror(error),
                     absent ? "give the path of a YAML file" : "check its permissions and the disk"));
  }
  return parse_config(text, path, overrides, needs);
}

std::string resolved_yaml(const TrainConfig& config) {
  std::string text, section;
  for (const ConfigKey& key : config_keys()) {
    const std::string in = config_section(key.name);
    if (in != section && !in.empty()) text += in + ":\n";
    section = in;
    text += fmt::format("{}{}: {}\n", in.empty() ? "" : "  ", in.empty() ? key.name : key.name.substr(in.size() + 1),
                        key.write(config));
  }
  return text;
}

}  // namespace megatrain
