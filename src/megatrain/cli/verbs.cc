#include "megatrain/cli/verbs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/bench/bench.h"
#include "megatrain/cli/loaded_model.h"
#include "megatrain/config/config.h"
#include "megatrain/config/config_help.h"
#include "megatrain/machine/machines.h"
#include "megatrain/model/presets.h"

namespace megatrain {

namespace {

constexpr const char* kGenerateDetails =
    R"(Continues a prompt, streaming the text. MODEL is a Hugging Face directory with tokenizer.json, RUN a run
directory (its model/ is used). Without --prompt and --prompt-file the prompt is read from standard input. One line
break at the end of a file or of standard input is not part of the prompt.

  --chat               the prompt is a user's message: the model's chat template is applied to it
  --system TEXT        a system message before it (with --chat)
  --max-tokens N       the most tokens of an answer; default 256. It also ends when the model's context is full
  --temperature T      0 always takes the likeliest token (the default); 1 samples from the model's probabilities
  --top-p P            samples among the likeliest tokens that hold this share of the probability; default 1: all
  --top-k K            samples among the K likeliest tokens; default 0: all
  --seed N             the same seed samples the same text; default 0
  --stop TEXT          ends the answer before this text; may be given several times
  --prompt-file FILE   a text file, or a .jsonl file with a prompt per line, {"prompt": "..."} or {"messages": [...]}:
                       these are answered in one batch, with one JSON line each
  --device, --precision, --memory.gpu, --threads   as in training; the precision is that of the file (bf16 or fp32)
                       when not given. Layers that do not fit memory.gpu stream through the device
  --json               one object: text, prompt_tokens, tokens, ids, finish ("stop" or "length"), seconds, tokens_per_s

An answer ends at eos_token_id of generation_config.json or config.json, at eos_token of tokenizer_config.json, and in a
chat at the token with which the template ends a turn.
)";

constexpr const char* kChatDetails =
    R"(A conversation in the terminal, through the model's chat template: answers come as they are made, ctrl-C stops one,
ctrl-D ends. Lines are edited, with a history (arrow keys, ctrl-R). Commands: /help, /reset, /system TEXT, /save FILE,
/quit. If standard input is not a terminal, each line of it is a message or a command, and only answers are printed.

  --system TEXT        the system message
  --context N          tokens that the conversation may hold; default: the model's, at most 8192, less if memory is
                       short. You are told when the context is full; /reset starts over
  --max-tokens N       the most tokens of an answer; default: what the context leaves
  --temperature T, --top-p P, --top-k K, --seed N, --stop TEXT   as in 'megatrain generate'
  --device, --precision, --memory.gpu, --threads   as in 'megatrain generate': layers that do not fit stream
  --json               one object per answer: text, prompt_tokens, tokens, finish ("stop" or "length")
)";

constexpr const char* kServeDetails =
    R"(Serves the model at http://127.0.0.1:8000/v1 to OpenAI's clients, to try a run out: GET /v1/models, POST
/v1/chat/completions and /v1/completions, whole or streamed. A page to chat with is at http://127.0.0.1:8000/, and
/health and /metrics (Prometheus) say how it does. Requests are batched, and join and leave the batch at any token.
Prints its address, then runs until ctrl-C or SIGTERM.

  --port N             default 8000; 0: any free port
  --host ADDRESS       default 127.0.0.1, which only this machine can reach. On any other address, everyone who can
                       reach it can use the model, unless --api-key-file is given; there is no TLS
  --api-key-file FILE  clients have to send one of the keys in FILE, one a line, as Authorization: Bearer KEY
  --max-sequences N    answers generated at once; default 8, fewer if memory is short. More requests wait
  --max-wait SECONDS   a request that has not begun after this time gets 503; default 600
  --context N          tokens of a prompt and its answer; default: the model's, at most 8192, fewer if memory is short
  --name NAME          what clients call the model; default: the last part of its directory (the run's for RUN/model)
  --adapter NAME=DIR   also serves the LoRA adapter in DIR (a PEFT directory, a run or Org/Name) over this base, to
                       requests whose model is NAME; may be given several times
  --device, --precision, --memory.gpu, --threads   as in 'megatrain generate': layers that do not fit stream
  --json               the address as an object: url, page, model, context, max_sequences, max_wait_s, api_key

Supported: messages or prompt, max_tokens, max_completion_tokens, temperature (default 1), top_p, top_k, seed, stop, n,
stream, stream_options.include_usage, logprobs, top_logprobs, echo, response_format (JSON, or a JSON schema), tools,
tool_choice, parallel_tool_calls. What would be ignored (penalties, logit_bias, ...) is refused with 400. It is made for
one person: requests have at most 8 MiB, 1024 answers wait, and there are no quotas.
)";

constexpr const char* kEvalDetails =
    R"(Asks the model every question of the file. Prints the share of answers that match exactly (apart from white
space at both ends), the first that do not match, and the loss and perplexity of the right answers. For text files,
folders and {"text": ...} lines it prints the loss and perplexity. MODEL is a Hugging Face directory, RUN a run
directory. A line of questions is one of

  {"question": "...", "answer": "..."}
  {"prompt": "...", "completion": "..."}
  {"messages": [..., {"role": "assistant", "content": "..."}]}    the last message is the answer

If the model has a chat template, it is applied to the question as a user's message. Answers are greedy (always the
likeliest token).

  --max-tokens N       the most tokens of an answer; default: 16 more than twice the right answer's
  --loss-only          asks nothing: only the loss and perplexity
  --seq-len N          the longest sample, and the length of the pieces that text is cut into; default: the model's
                       context, at most 4096
  --data.cache DIR     where tokenised datasets are kept, as in training
  --device, --precision, --memory.gpu, --threads   as in 'megatrain generate'
  --json               one object: exact_match, right, count, mismatches, tokens, seconds, tokens_per_s, loss,
                       perplexity, loss_tokens
)";

constexpr const char* kWatchDetails =
    R"(Reads run directories while runs write them; a run is not affected and opens no port. RUN need not exist yet.

In a terminal: a curve, the lanes of a recent step, memory by tier, time left, alerts. Keys: q quits, m shows the next
curve, x switches steps, tokens and time, l a logarithmic axis, s smoothing, r the next run.

  --json               prints the state of each run, one object per line
  --json --follow      a line for every step, evaluation, sample, alert and change of state, from the run's beginning;
                       ends when all runs have ended, with 0 or the exit code of the run that did not succeed: its own,
                       128 + the signal that stopped it, 137 if it was killed
  --http [PORT]        serves the page of 'megatrain report' at http://127.0.0.1:PORT (8484, or a free one), and updates
                       it; several runs are compared
  --host ADDRESS       with --http: the address to listen on. Anyone who can reach it can read the runs
  --alert-command CMD  run by sh for every alert, with the alert as one line of JSON on its standard input
  --alert-spike F      alert if a loss is above F times the median of the 50 before it; default 1.5; 0: never
  --alert-stall S      alert after S seconds without anything new; default: ten steps, and at least 120
  --alert-disk SIZE    alert if less than this is free on the run's disk; default 2GiB

Other alerts: a loss that is not finite, host memory that is nearly used up, a run that failed or was killed.
)";

std::vector<Verb> training_verbs() {
  return {
      {.name = "demo",
       .summary = "teach a small model arithmetic; a few minutes on two CPU cores",
       .usage = "[--adapter] [--seed N] [--steps N] [--run_dir DIR] [--device auto|cpu|cuda]",
       .details =
           "Teaches a small model two-digit addition from nothing, shows the loss fall, and asks it questions it\n"
           "has never seen, before and after. The model is exported to RUN/model.\n\n"
           "  --adapter   a LoRA adapter of that model learns subtraction; then shows the answers with the adapter "
           "and\n"
           "              without it, which are those from before. Uses the RUN of an earlier demo, or makes it "
           "first;\n"
           "              the adapter is exported to RUN-adapter/model\n",
       .flags = {"--adapter"},
       .run = verb_demo},
      {.name = "train",
       .takes = "CONFIG.yaml",
       .summary = "train; RUN/model is a Hugging Face directory afterwards",
       .usage = "[--dotted.key=value ...]",
       .details =
           "Trains as CONFIG.yaml says. Options on the command line override the file. Paths are relative to the\n"
           "current directory. --resume continues from the newest checkpoint of run_dir. SIGINT, SIGTERM and SIGHUP "
           "save,\n"
           "then stop; SIGUSR1 saves and continues.\n\n"
           "Keys, by group; '--help optim' describes the keys of a group, '--help optim.lr' one key:\n\n" +
           config_help(),
       .run = verb_train},
      {.name = "prepare",
       .takes = "CONFIG.yaml",
       .summary = "tokenise its datasets into the cache, and print their sizes",
       .usage = "[--dotted.key=value ...] [--out DIR]",
       .details =
           "Tokenises data.train and data.eval in parallel into the cache, where 'train' finds them; if interrupted, "
           "it\n"
           "continues from where it was. Prints samples, tokens, what is trained, and how full the packed sequences "
           "are.\n"
           "--out DIR also writes them, packed and in the order of the run, as tokens.bin (uint32), labels.bin and\n"
           "documents.bin. Train on them with data.tokens: DIR/tokens.bin; DIR/prepared.json has the other settings.\n"
           "--skip-bad N leaves out up to N bad samples; without it the first one is an error with file and line.\n",
       .options = {"--out"},
       .run = verb_prepare},
      {.name = "inspect data",
       .takes = "CONFIG.yaml",
       .summary = "what the trainer sees: text, with the trained part marked",
       .usage = "[--dotted.key=value ...] [-n N] [--color auto|always|never]",
       .details = "The first N sequences of a run (3 unless given) as the trainer gets them: documents with file and "
                  "line, and\n"
                  "their text; what is trained is green on a terminal and in \u27e6\u27e7 elsewhere.\n",
       .options = {"-n", "--color"},
       .run = verb_inspect_data},
  };
}

std::vector<Verb> answering_verbs() {
  return {
      {.name = "generate",
       .takes = "MODEL|RUN",
       .summary = "continue a prompt, or answer a file of prompts",
       .usage = "[--prompt TEXT | --prompt-file FILE] [options]",
       .details = kGenerateDetails,
       .options = with_loaded_model_options({"--prompt", "--prompt-file", "--system", "--max-tokens", "--temperature",
                                             "--top-p", "--top-k", "--seed", "--stop"}),
       .flags = {"--chat"},
       .keys = false,
       .run = verb_generate},
      {.name = "chat",
       .takes = "MODEL|RUN",
       .summary = "talk with a model in the terminal",
       .usage = "[--system TEXT] [options]",
       .details = kChatDetails,
       .options = with_loaded_model_options(
           {"--system", "--context", "--max-tokens", "--temperature", "--top-p", "--top-k", "--seed", "--stop"}),
       .keys = false,
       .run = verb_chat},
      {.name = "serve",
       .takes = "MODEL|RUN",
       .summary = "serve a model to OpenAI's clients on this machine",
       .usage = "[--adapter NAME=DIR ...] [--port N] [--host ADDRESS] [--max-sequences N] [options]",
       .details = kServeDetails,
       .options = with_loaded_model_options(
           {"--port", "--host", "--api-key-file", "--max-sequences", "--max-wait", "--context", "--name", "--adapter"}),
       .keys = false,
       .run = verb_serve},
      {.name = "eval",
       .takes = "MODEL|RUN FILE",
       .summary = "loss, perplexity, and how many questions it answers exactly right",
       .usage = "[--max-tokens N] [--loss-only] [--seq-len N]",
       .details = kEvalDetails,
       .options = with_loaded_model_options({"--max-tokens", "--seq-len", "--data.cache"}),
       .flags = {"--loss-only"},
       .keys = false,
       .run = verb_eval},
  };
}

std::vector<Verb> planning_verbs() {
  return {
      {.name = "plan",
       .takes = "CONFIG|DIR|PRESET|Org/Name",
       .summary = "whether it fits, where, how fast, and what to change; --what-fits: a table of presets",
       .usage = "[--machine NAME|FILE] [--ram SIZE] [--disk SIZE] [--price HOUR] [--bytes]\n"
                "    [--memory.gpu=24GiB --memory.host=100GiB --batch=32 ...] [--layers N] [--random SEED]\n"
                "megatrain plan --what-fits [PRESET…] [--machine NAME|FILE] [--ram SIZE] [--disk SIZE]",
       .details = fmt::format(
           "Prints whether it fits, tokens/s, memory, time and cost; then what bounds a step, what would be faster,\n"
           "and the longest context that fits. If it does not fit, the changes with which it would, each with its\n"
           "own tokens/s (exit code 4). A model without --batch is planned with a step large enough to hide what\n"
           "does not grow with it. Allocates nothing; needs neither weights nor data.\n\n"
           "  --machine NAME   plans for another machine, from data sheets: {}\n"
           "  --machine FILE   the same from what 'megatrain doctor --json' printed on that machine (FILE.json)\n"
           "  --ram SIZE       plans with this much host memory instead\n"
           "  --disk SIZE      plans with a drive of this size for what memory cannot hold; memory.nvme is a budget "
           "within it\n"
           "  --price HOUR     the cost of an hour: prints the cost of the run, or of a billion tokens\n"
           "  --bytes          prints where every byte lives, and the parts of a step\n"
           "  --what-fits      a table of training modes of these presets, or of all: tokens/s, or \"no\"\n"
           "  --layers N       plans with N layers instead of the model's\n"
           "  --random SEED    a random valid plan\n\n"
           "'megatrain train --plan=FILE' uses a plan printed with --json. Presets: {}\n",
           machine_names(), fmt::join(preset_names(), ", ")),
       .options = {"--random", "--layers", "--machine", "--ram", "--disk", "--price"},
       .flags = {"--what-fits", "--bytes"},
       .run = verb_plan},
      {.name = "doctor",
       .summary = "what is wrong with this machine, and how fast it is; later plans use its measurements",
       .usage = "[--dir DIR] [--out FILE] [--checks] [--device auto|cpu|cuda] [--threads N]",
       .details = "Measures link, host memory, disk, matmuls and attention in under 20 s and keeps the profile in the "
                  "user's\n"
                  "cache, where every later plan on this machine finds it. Then checks what makes training slow or "
                  "fail, with\n"
                  "a fix for each: GPU and driver, memlock, control group, huge pages, PCIe, NUMA, scratch directory.\n"
                  "Warnings do not change the exit code.\n\n"
                  "  --dir DIR     where scratch files would be; default: the current directory\n"
                  "  --out FILE    keeps the profile in FILE instead, for 'megatrain plan --machine FILE' elsewhere\n"
                  "  --checks      measures nothing\n",
       .options = {"--dir", "--out"},
       .flags = {"--checks"},
       .run = verb_doctor},
  };
}

std::vector<Verb> run_verbs() {
  return {
      {.name = "watch",
       .takes = "RUN...",
       .summary = "follow runs: in the terminal, as JSON lines, or --http as a live page",
       .usage = "[--http [PORT]] [--host ADDRESS] [--follow] [--alert-command CMD] [options]",
       .details = kWatchDetails,
       .options = {"--host", "--alert-command", "--alert-spike", "--alert-stall", "--alert-disk"},
       .flags = {"--http", "--follow"},
       .keys = false,
       .run = verb_watch},
      {.name = "report",
       .takes = "RUN",
       .summary = "one HTML page: loss, speed, lanes of a step, memory, configuration",
       .usage = "[--out FILE.html]",
       .details = "Writes one self-contained HTML page, RUN/report.html unless --out says otherwise: curves, the lanes "
                  "of one\n"
                  "step, memory by tier, configuration, samples. Works during the run.\n",
       .options = {"--out"},
       .keys = false,
       .run = verb_report},
      {.name = "inspect",
       .takes = "MODEL|RUN",
       .summary = "what a model directory contains, or the state of a run",
       .usage = "[--tensors]",
       .details =
           "For a Hugging Face directory (or Org/Name in the Hugging Face cache): family, parameters, shape, types,\n"
           "tokenizer, special ids, and what training it would need; --tensors lists every tensor. For a PEFT\n"
           "directory: the settings and the size of its adapters. For a run: its state. See 'megatrain inspect data\n"
           "--help' for data.\n",
       .flags = {"--tensors"},
       .keys = false,
       .run = verb_inspect},
      {.name = "export",
       .takes = "RUN --out DIR",
       .summary = "a Hugging Face directory or a GGUF file from a run's newest checkpoint",
       .usage = "[--dtype bf16|fp32 | --adapter | --gguf f32|bf16|f16|q8_0]",
       .details =
           "Writes a Hugging Face directory from the newest state of a run (its last checkpoint, or RUN/model when "
           "that\n"
           "is newer); RUN may also be one checkpoint, RUN/checkpoints/step-NNNNNNNN. DIR must not exist yet.\n"
           "--dtype converts all weights; without it each keeps the type it was trained from.\n"
           "A run that trains adapters exports a PEFT directory; --adapter refuses a run that does not.\n"
           "--gguf writes one file for llama.cpp, --out FILE.gguf, with tokenizer and chat template; RUN may also be "
           "a\n"
           "Hugging Face directory or Org/Name in the Hugging Face cache. Norms, biases and routers stay f32, and "
           "q8_0\n"
           "rounds as llama.cpp does. A PEFT directory becomes an adapter for llama.cpp's --lora.\n",
       .options = {"--out", "--dtype", "--gguf"},
       .flags = {"--adapter"},
       .keys = false,
       .run = verb_export},
      {.name = "merge",
       .takes = "BASE ADAPTER --out DIR",
       .summary = "a whole model from adapters and their base",
       .usage = "[--dtype bf16|fp32]",
       .details =
           "Adds the adapters of a PEFT directory to the weights that they were trained on, in fp32, rounds once, "
           "and\n"
           "writes a Hugging Face directory, tensor by tensor. Weights keep the type of the base (MXFP4 becomes "
           "bf16);\n"
           "--dtype converts them. DIR must not exist yet.\n",
       .options = {"--out", "--dtype"},
       .keys = false,
       .run = verb_merge},
      {.name = "hash",
       .takes = "RUN|DIR|FILE",
       .summary = "the hash of a state or a model",
       .details = "xxh3_128 over the logical bytes in name order, for a run's state (fp32 master and moments), a "
                  "Hugging Face\n"
                  "directory, or a safetensors file (stored bytes).\n",
       .keys = false,
       .run = verb_hash},
  };
}

std::vector<Verb> shell_verbs() {
  return {
      {.name = "completion",
       .takes = "bash|zsh|fish",
       .summary = "a script that completes commands, options, keys and values in a shell",
       .details = "Prints the script. For bash 'source <(megatrain completion bash)' in ~/.bashrc, for zsh\n"
                  "'source <(megatrain completion zsh)' in ~/.zshrc, for fish 'megatrain completion fish | source' in\n"
                  "~/.config/fish/config.fish. An installation puts the bash script where bash-completion finds it.\n",
       .keys = false,
       .run = verb_completion},
  };
}

// In the order of the help text.
std::vector<Verb> make_verbs() {
  std::vector<Verb> table;
  for (const auto group : {training_verbs, answering_verbs, planning_verbs, run_verbs, shell_verbs, bench_verbs}) {
    for (Verb& verb : group()) table.push_back(std::move(verb));
  }
  return table;
}

}  // namespace

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> kVerbs = make_verbs();
  return kVerbs;
}

}  // namespace megatrain
