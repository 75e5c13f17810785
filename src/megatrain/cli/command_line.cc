#include <cstdio>
#include <exception>
#include <map>
#include <new>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/model/presets.h"
#include "megatrain/train/config.h"

#include <fmt/ranges.h>

namespace megatrain {

namespace {

constexpr const char* kHelp =
    R"(megatrain trains and fine-tunes large language models at full precision on one GPU: parameters and
optimizer state live in host memory, and layers stream through the device.

  megatrain demo                     teach a small model arithmetic; a few minutes on two CPU cores
  megatrain train CONFIG.yaml        train; RUN/model is a Hugging Face directory afterwards
  megatrain prepare CONFIG.yaml      tokenise its datasets into the cache, and say what they came to
  megatrain plan CONFIG|DIR|PRESET   what would live where, what it needs, what bounds the step
  megatrain hash RUN|DIR|FILE        the hash of a state or a model
  megatrain bench step PRESET        time training steps of a known shape; also floor, ops, link, dram, disk, suite

'megatrain VERB --help' says more. Results go to standard output (as JSON with --json), logs to standard error.
Exit codes: 0 done, 1 internal error, 2 bad config or usage, 3 bad model or data file, 4 cannot fit, 5 I/O or disk,
6 non-finite, 7 corrupt checkpoint, 8 stalled, 130/143 stopped by a signal after a durable save.
)";

const std::map<std::string, std::string>& verb_help() {
  static const std::map<std::string, std::string> kVerbHelp = {
      {"train",
       "megatrain train CONFIG.yaml [--dotted.key=value ...] [--json]\n\nTrains as CONFIG.yaml says; words of the "
       "command line go over the file. "
       "Paths are relative to the current\ndirectory. --resume goes on from the newest checkpoint of run_dir. SIGINT "
       "and SIGTERM save, then stop.\n\nKeys:\n" +
           config_help()},
      {"prepare",
       "megatrain prepare CONFIG.yaml [--dotted.key=value ...] [--out DIR] [--json]\n\nTokenises data.train and "
       "data.eval "
       "in parallel into the cache, where 'train' finds them; interrupted, it goes on\nfrom where it was. Prints "
       "samples, "
       "tokens, what is trained, and how full the packed sequences are.\n"
       "--out DIR also writes them, packed and in the order of the run, as tokens.bin (uint32), labels.bin and\n"
       "documents.bin, the files that data.tokens, data.labels and data.documents name.\n"
       "--skip-bad N leaves out up to N bad samples; without it the first one ends the run with file and line.\n"},
      {"plan", fmt::format("megatrain plan CONFIG|DIR|PRESET [--memory.gpu=24GiB --memory.host=100GiB --batch=32 ...] "
                           "[--layers N] [--random SEED] [--json]\n\n"
                           "Prints where weights, gradients and block inputs would live and what the step is bound by; "
                           "allocates nothing.\n"
                           "--random SEED prints some other valid plan. 'megatrain train --plan=FILE' uses a plan "
                           "printed with --json.\n"
                           "Presets: {}\n",
                           fmt::join(preset_names(), ", "))},
      {"hash",
       "megatrain hash RUN|DIR|FILE [--json]\n\nxxh3_128 over the logical bytes in name order: of a run's state (fp32 "
       "master and moments), of a Hugging Face\n"
       "directory, or of a safetensors file (stored bytes).\n"},
      {"demo",
       "megatrain demo [--seed N] [--steps N] [--run_dir DIR] [--device auto|cpu|cuda] [--json]\n\nTeaches a small "
       "model two-digit addition from nothing, shows the loss fall, and asks it questions it\n"
       "has never seen, before and after. The model is exported to RUN/model.\n"},
  };
  return kVerbHelp;
}

int dispatch(const Words& words) {
  static const std::map<std::string, int (*)(const Words&)> kVerbs = {{"train", verb_train}, {"prepare", verb_prepare},
                                                                      {"plan", verb_plan},   {"hash", verb_hash},
                                                                      {"demo", verb_demo},   {"bench", verb_bench}};
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    std::fputs(kHelp, stdout);
    return words.empty() ? static_cast<int>(ExitCode::bad_config) : 0;
  }
  if (words[0] == "--version") {
    fmt::print("megatrain {}\n", MEGATRAIN_VERSION);
    return 0;
  }
  const auto verb = kVerbs.find(words[0]);
  if (verb == kVerbs.end())
    fail_config(fmt::format("'{}' is not a verb of megatrain; 'megatrain --help' lists them", words[0]));
  const Words rest(words.begin() + 1, words.end());
  if (words[0] == "bench") return verb_bench(rest);  // has verbs, and help, of its own
  for (const std::string& word : rest) {
    if (word == "--help" || word == "-h") {
      std::fputs(verb_help().at(words[0]).c_str(), stdout);
      return 0;
    }
  }
  return verb->second(rest);
}

}  // namespace

int run_command_line(const Words& words) {
  try {
    return dispatch(words);
  } catch (const Error& error) {
    fmt::print(stderr, "megatrain: {}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "megatrain: out of host memory; lower memory.host or the batch\n");
    return static_cast<int>(ExitCode::cannot_fit);
  } catch (const std::exception& error) {
    fmt::print(stderr, "megatrain: internal error: {}; please report this with the command that led to it\n",
               error.what());
    return static_cast<int>(ExitCode::internal);
  }
}

}  // namespace megatrain
