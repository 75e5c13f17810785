#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <new>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/bench/bench.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/config.h"
#include "megatrain/model/presets.h"

#include <fmt/ranges.h>

namespace megatrain {

namespace {

constexpr const char* kHelp =
    R"(megatrain trains and fine-tunes large language models at full precision on one GPU: parameters and
optimizer state live in host memory, and layers stream through the device.

  megatrain demo                     teach a small model arithmetic; a few minutes on two CPU cores
  megatrain train CONFIG.yaml        train; RUN/model is a Hugging Face directory afterwards
  megatrain prepare CONFIG.yaml      tokenise its datasets into the cache, and say what they came to
  megatrain inspect data CONFIG.yaml what the trainer sees: text with what of it is trained
  megatrain generate MODEL|RUN       let a model answer a prompt, or a file of them
  megatrain eval MODEL|RUN FILE      loss, perplexity, and how many questions it answers exactly right
  megatrain plan CONFIG|DIR|PRESET   what would live where, what it needs, what bounds the step
  megatrain report RUN               one HTML page: loss, speed, lanes of a step, memory, configuration
  megatrain inspect MODEL|RUN        what a model directory holds, or where a run stands
  megatrain export RUN --out DIR     a Hugging Face directory from a run's newest checkpoint
  megatrain hash RUN|DIR|FILE        the hash of a state or a model
  megatrain bench step PRESET        time training steps of a known shape; also floor, ops, link, dram, disk, suite

'megatrain VERB --help' says more. Results go to standard output (as JSON with --json), logs to standard error.
Exit codes: 0 done, 1 internal error, 2 bad config or usage, 3 bad model or data file, 4 cannot fit, 5 I/O or disk,
6 non-finite, 7 corrupt checkpoint, 8 stalled, 129/130/143 stopped by a signal after a durable save.
)";

constexpr const char* kGenerateHelp =
    R"(megatrain generate MODEL|RUN [--prompt TEXT | --prompt-file FILE] [options]

Goes on from a prompt and prints the text as it comes. MODEL is a Hugging Face directory with tokenizer.json, RUN a
run directory (its model/ is used). Without --prompt and --prompt-file the prompt is read from standard input. One
line end at the end of a file or of standard input is not part of the prompt.

  --chat               the prompt is a user's message: it goes through the model's chat template
  --system TEXT        a system message before it (with --chat)
  --max-tokens N       length of an answer, at most; default 256. It also ends where the model's context does
  --temperature T      0 takes the likeliest token every time (the default); 1 draws by the model's probabilities
  --top-p P            draws among the likeliest tokens that hold this share of the probability; default 1: all
  --top-k K            draws among the K likeliest tokens; default 0: all
  --seed N             the same seed draws the same text; default 0
  --stop TEXT          ends the answer before this text; may be given several times
  --prompt-file FILE   a text, or with a name in .jsonl one prompt a line, {"prompt": "..."} or {"messages": [...]}:
                       they are answered together, one JSON line each
  --device, --precision, --memory.gpu, --threads   as in training; the precision is that of the file (bf16 or fp32)
                       when not given. Layers that do not fit memory.gpu stream through the device
  --json               one object: text, prompt_tokens, tokens, ids, finish ("stop" or "length"), seconds, tokens_per_s

An answer ends at eos_token_id of generation_config.json or config.json, at eos_token of tokenizer_config.json, and in a
chat at the token with which the template ends a turn.
)";

constexpr const char* kEvalHelp =
    R"(megatrain eval MODEL|RUN FILE [--max-tokens N] [--loss-only] [--seq-len N] [--json]

Asks the model every question of the file and prints the share of answers that are exactly right, white space at both
ends apart, and the first that are not; and the loss and perplexity of the right answers. Of text files, folders and
{"text": ...} lines it prints the loss and perplexity. MODEL is a Hugging Face directory, RUN a run directory. A line of
questions is one of

  {"question": "...", "answer": "..."}
  {"prompt": "...", "completion": "..."}
  {"messages": [..., {"role": "assistant", "content": "..."}]}    the last message is the answer

Questions go through the model's chat template when it has one, as a user's message. Answers are greedy (the likeliest
token every time).

  --max-tokens N       length of an answer, at most; default: 16 tokens more than twice the right answer's
  --loss-only          asks nothing: the loss and perplexity alone
  --seq-len N          the longest sample, and the pieces that text is cut into; default: the model's context, at most
                       4096
  --device, --precision, --memory.gpu, --threads   as in 'megatrain generate'
  --json               one object: exact_match, right, count, mismatches, tokens, seconds, tokens_per_s, loss,
                       perplexity, loss_tokens
)";

const std::map<std::string, std::string>& verb_help() {
  static const std::map<std::string, std::string> kVerbHelp = {
      {"train",
       "megatrain train CONFIG.yaml [--dotted.key=value ...] [--json]\n\nTrains as CONFIG.yaml says; words of the "
       "command line go over the file. "
       "Paths are relative to the current\ndirectory. --resume goes on from the newest checkpoint of run_dir. SIGINT, "
       "SIGTERM and SIGHUP save, then stop;\nSIGUSR1 saves and goes on.\n\nKeys:\n" +
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
      {"generate", kGenerateHelp},
      {"eval", kEvalHelp},
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
      {"inspect",
       "megatrain inspect MODEL|RUN [--tensors] [--json]\n\nOf a Hugging Face directory (or Org/Name in the Hugging "
       "Face "
       "cache): family, parameters, shape, types, tokenizer,\n"
       "special ids, and what training it would need; --tensors lists every tensor. Of a run: where it stands.\n\n"
       "megatrain inspect data CONFIG.yaml [--dotted.key=value ...] [-n N] [--color auto|always|never] [--json]\n\n"
       "The first N sequences of a run (3 unless given) as the trainer gets them: documents with file and line, and\n"
       "their text, what is trained in green on a terminal and in \u27e6\u27e7 elsewhere.\n"},
      {"export",
       "megatrain export RUN|CHECKPOINT --out DIR [--dtype bf16|fp32] [--json]\n\nWrites a Hugging Face directory from "
       "the newest state of a run (its last checkpoint, or RUN/model when that is\n"
       "newer) or from RUN/checkpoints/step-N. DIR must not be there yet. --dtype converts all weights; without it "
       "each "
       "\nkeeps the type it was trained from.\n"},
      {"report",
       "megatrain report RUN [--out FILE.html] [--json]\n\nWrites one self-contained HTML page, RUN/report.html unless "
       "--out says otherwise: curves, the lanes of one\n"
       "step, memory by tier, configuration, samples. Works while the run goes on.\n"},
      {"demo",
       "megatrain demo [--seed N] [--steps N] [--run_dir DIR] [--device auto|cpu|cuda] [--json]\n\nTeaches a small "
       "model two-digit addition from nothing, shows the loss fall, and asks it questions it\n"
       "has never seen, before and after. The model is exported to RUN/model.\n"},
  };
  return kVerbHelp;
}

int dispatch(const Words& words) {
  static const std::map<std::string, int (*)(const Words&)> kVerbs = {
      {"train", verb_train},   {"prepare", verb_prepare}, {"generate", verb_generate}, {"eval", verb_eval},
      {"plan", verb_plan},     {"hash", verb_hash},       {"inspect", verb_inspect},   {"export", verb_export},
      {"report", verb_report}, {"demo", verb_demo},       {"bench", verb_bench}};
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
