#include "megatrain/bench/bench.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/presets.h"

namespace megatrain {

namespace {

struct BenchVerb {
  const char* name;
  BenchResult (*run)(const Words&);
  const char* help;
};

constexpr BenchVerb kVerbs[] = {
    {"step", bench_step,
     "bench step X [--layers N] [--batch B] [--seq-len S] [--micro-batch M] [-r STEPS] [--memory.gpu=SIZE ...]\n"
     "           [--floor | --no-floor] [--no-hash] [--serial] [--slots N] [--trace steps=A-B]\n"
     "  The trainer's own loop on random weights and tokens: tokens/s, lanes, bytes, peaks, % of the floor.\n"
     "  --floor measures the floor on the CPU too, --no-floor nowhere. --serial and --slots change the plan.\n"},
    {"floor", bench_floor,
     "bench floor X [--layers N] [--seq-len S] [--micro-batch M]\n"
     "  The best library time of every matrix product and attention call of a step, each alone, summed: the speed of\n"
     "  light, when every block is recomputed and when nothing is.\n"},
    {"ops", bench_ops,
     "bench ops X [--layers N] [--seq-len S] [--micro-batch M]\n"
     "  Every op at the shapes of the model, each alone: time, TFLOP/s, GB/s.\n"},
    {"link", bench_link,
     "bench link [--largest SIZE] [--device=...]\n"
     "  Host to device, device to host and both at once, in pieces of 1 MiB, 64 MiB and 1 GiB (up to --largest).\n"},
    {"dram", bench_dram,
     "bench dram [--gib G] [--threads=N]\n"
     "  Host memory under the optimizer's own mix, in place: 14 bytes read and 12 written a parameter, as a plain "
     "loop\n"
     "  and as AdamW.\n"},
    {"disk", bench_disk,
     "bench disk [--dir DIR] [--gib G]\n"
     "  Sequential write and read past the page cache, in a file of DIR that has no name.\n"},
    {"suite", bench_suite,
     "bench suite FILE\n"
     "  Many rows of 'bench step' in one process. FILE is a YAML or JSON list of {name, args: [words]}.\n"},
};

std::string help() {
  std::string text;
  for (const BenchVerb& verb : kVerbs) text += fmt::format("megatrain {}\n", verb.help);
  return text + fmt::format(
                    "All take --json. X is a preset, a config.json, a Hugging Face directory or a CONFIG.yaml.\n"
                    "Presets: {}\n",
                    fmt::join(preset_names(), ", "));
}

bool is_help(const std::string& word) { return word == "--help" || word == "-h"; }

}  // namespace

Words with_key_spelling(Words words) {
  for (std::string& word : words) {
    for (const std::string name : {"--seq-len", "--micro-batch"}) {
      if (word.rfind(name, 0) == 0)
        std::replace(word.begin() + 2, word.begin() + static_cast<int64_t>(name.size()), '-', '_');
    }
  }
  return words;
}

Words for_one_micro_batch(Words words) {
  words = with_key_spelling(std::move(words));
  std::string micro_batch;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string key = words[i].substr(0, words[i].find('='));
    if (key == "--batch") return words;
    if (key == "--micro_batch" && key != words[i]) micro_batch = words[i].substr(key.size() + 1);
    if (key == "--micro_batch" && key == words[i] && i + 1 < words.size()) micro_batch = words[i + 1];
  }
  if (!micro_batch.empty()) words.push_back("--batch=" + micro_batch);
  return words;
}

int64_t gib_option(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0 && value < 1e6))
    fail_config(fmt::format("--gib is '{}'; expected a number of GiB above 0, such as 4 or 0.5", text));
  return std::max<int64_t>(static_cast<int64_t>(value * static_cast<double>(kGiB)), 1);
}

int verb_bench(const Words& words) {
  if (!words.empty() && is_help(words[0])) {
    fmt::print("{}", help());
    return 0;
  }
  const auto verb = std::find_if(std::begin(kVerbs), std::end(kVerbs),
                                 [&](const BenchVerb& v) { return !words.empty() && words[0] == v.name; });
  if (verb == std::end(kVerbs)) {
    std::vector<std::string> names;
    for (const BenchVerb& v : kVerbs) names.push_back(v.name);
    fail_config(fmt::format("'megatrain bench' takes one of {}, {} given; see 'megatrain bench --help'",
                            fmt::join(names, ", "), words.empty() ? "none was" : fmt::format("'{}' was", words[0])));
  }
  if (std::any_of(words.begin(), words.end(), is_help)) {
    fmt::print("megatrain {}", verb->help);
    return 0;
  }
  Words rest(words.begin() + 1, words.end());
  const bool json = std::erase(rest, "--json") > 0;
  const BenchResult result = verb->run(rest);
  if (json) {
    fmt::print("{}\n", json_text(result.json));
  } else {
    fmt::print("{}", result.text);
  }
  return result.code;
}

}  // namespace megatrain
