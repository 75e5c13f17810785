#include "megatrain/bench/bench.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/among.h"
#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/config/config_keys.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/presets.h"
#include "megatrain/train/target.h"

namespace megatrain {

namespace {

template <BenchResult (*kMeasure)(const Arguments&)>
int print_result(const Arguments& arguments) {
  const BenchResult result = kMeasure(arguments);
  fmt::print("{}", arguments.json() ? json_text(result.json) + "\n" : result.text);
  return result.code;
}

std::string about_targets() {
  return fmt::format("X is a preset, a config.json, a Hugging Face directory or a CONFIG.yaml. Presets: {}\n",
                     fmt::join(preset_names(), ", "));
}

}  // namespace

Verb step_verb() {
  return {
      .name = "bench step",
      .takes = "X",
      .summary = "time training steps of a known shape, such as a preset; also floor, ops, link, dram, disk, suite",
      .usage =
          "[--layers N] [--batch B] [--seq-len S] [--micro-batch M] [-r STEPS] [--memory.gpu=SIZE ...]\n"
          "    [--floor | --no-floor] [--no-hash] [--serial] [--slots N] [--alias-layers N] [--trace steps=A-B]",
      .details =
          "The trainer's own loop on random weights and tokens: tokens/s, lanes, bytes, peaks, % of the floor.\n"
          "--floor measures the floor on the CPU too; --no-floor skips it. --serial and --slots change the plan.\n"
          "--alias-layers lets all layers live in the memory of N, to time a model that is larger than the machine:\n"
          "state in RAM, a learning rate of 0, no hash.\n" +
          about_targets(),
      .options = {"--layers", "-r", "--slots", "--alias-layers", "--seq-len", "--micro-batch"},
      .flags = {"--serial", "--no-hash", "--floor", "--no-floor"},
      .run = print_result<bench_step>};
}

std::vector<Verb> bench_verbs() {
  return {
      step_verb(),
      {.name = "bench floor",
       .takes = "X",
       .usage = "[--layers N] [--seq-len S] [--micro-batch M]",
       .details = "The best library time of every matmul and attention call of a step, each timed separately, summed:\n"
                  "the speed of light, when every block is recomputed and when nothing is.\n" +
                  about_targets(),
       .options = {"--layers", "--seq-len", "--micro-batch"},
       .run = print_result<bench_floor>},
      {.name = "bench ops",
       .takes = "X",
       .usage = "[--layers N] [--seq-len S] [--micro-batch M]",
       .details =
           "Every op at the shapes of the model, each timed separately: time, TFLOP/s, GB/s.\n" + about_targets(),
       .options = {"--layers", "--seq-len", "--micro-batch"},
       .run = print_result<bench_ops>},
      {.name = "bench link",
       .usage = "[--largest SIZE] [--device=...]",
       .details =
           "Host to device, device to host and both at once, in pieces of 1 MiB, 64 MiB and 1 GiB (up to --largest).\n",
       .options = {"--largest"},
       .run = print_result<bench_link>},
      {.name = "bench dram",
       .usage = "[--gib G] [--threads=N]",
       .details =
           "Host memory under the optimizer's own mix, in place: 14 bytes read and 12 written per parameter, as\n"
           "a plain loop and as AdamW.\n",
       .options = {"--gib"},
       .run = print_result<bench_dram>},
      {.name = "bench disk",
       .usage = "[--dir DIR] [--gib G]",
       .details = "Write, read and both at once, bypassing the page cache, in an unnamed file in DIR, with the I/O\n"
                  "queues of a run.\n",
       .options = {"--dir", "--gib"},
       .keys = false,
       .run = print_result<bench_disk>},
      {.name = "bench suite",
       .takes = "FILE",
       .details = "Many rows of 'bench step' in one process. FILE is a YAML or JSON list of {name, args: [words]}.\n",
       .keys = false,
       .run = print_result<bench_suite>},
  };
}

namespace {

// Keys without an effect here: `bench` times random tokens for as many steps as -r says, and keeps nothing.
bool means_nothing(const std::string& key) {
  constexpr const char* kGroups[] = {"data.", "eval.", "sample.", "checkpoint.", "dump."};
  constexpr const char* kKeys[] = {"steps", "epochs", "tokens", "run_dir", "resume", "conventions"};
  const auto begins = [&](const char* group) { return key.starts_with(group); };
  return std::any_of(std::begin(kGroups), std::end(kGroups), begins) || among(kKeys, key);
}

}  // namespace

Session open_bench_target(const Arguments& arguments, Shape shape) {
  std::vector<std::string> overrides = arguments.overrides();
  for (const ConfigKey& key : config_keys()) {
    if (means_nothing(key.name) && arguments.overrides(key.name))
      fail_config(fmt::format("--{} has no effect on a benchmark; leave it out{}", key.name,
                              key.name == "steps" ? " and give the number of steps with -r" : ""));
  }
  if (const auto tokens = arguments.option("--seq-len")) overrides.push_back("--seq_len=" + *tokens);
  if (const auto sequences = arguments.option("--micro-batch")) overrides.push_back("--micro_batch=" + *sequences);
  if (shape == Shape::one_micro_batch) {
    std::string micro_batch;
    bool batch = false;
    for (size_t i = 0; i < overrides.size(); ++i) {
      const std::string &word = overrides[i], key = word.substr(0, word.find('='));
      batch = batch || key == "--batch";
      if (key == "--micro_batch" && key != word) micro_batch = word.substr(key.size() + 1);
      if (key == "--micro_batch" && key == word && i + 1 < overrides.size()) micro_batch = overrides[i + 1];
    }
    if (!micro_batch.empty() && !batch) overrides.push_back("--batch=" + micro_batch);
  }
  return open_target(arguments.one("PRESET or config.json"), overrides, arguments.integer("--layers"));
}

int64_t gib_option(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0 && value < 1e6))
    fail_config(fmt::format("--gib is '{}'; expected a number of GiB above 0, such as 4 or 0.5", text));
  return std::max<int64_t>(static_cast<int64_t>(value * static_cast<double>(kGiB)), 1);
}

}  // namespace megatrain
