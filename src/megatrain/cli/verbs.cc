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
    R"(Goes on from a prompt and prints the text as it comes. MODEL is a Hugging Face directory with tokenizer.json, RUN a
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

constexpr const char* kChatDetails =
    R"(A conversation in the terminal, through the model's chat template: answers come as they are made, ctrl-C stops one,
ctrl-D ends. Lines are edited, with a history (arrow keys, ctrl-R). Commands: /help, /reset, /system TEXT, /save FILE,
/quit. When standard input is no terminal each line of it is a message or a command, and only the answers are printed.

  --system TEXT        the system message
  --context N          tokens that the conversation may hold; default: the model's, at most 8192, less where memory is
                       short. A full context is said, and /reset begins anew
  --max-tokens N       length of an answer, at most; default: what the context leaves
  --temperature T, --top-p P, --top-k K, --seed N, --stop TEXT   as in 'megatrain generate'
  --device, --precision, --memory.gpu, --threads   as in 'megatrain generate': layers that do not fit stream
  --json               one object an answer: text, prompt_tokens, tokens, finish ("stop" or "length")
)";

constexpr const char* kServeDetails =
    R"(Serves the model at http://127.0.0.1:8000/v1 to OpenAI's clients, to try a run out: GET /v1/models, POST
/v1/chat/completions and /v1/completions, whole or streamed. Requests are answered together, and join and leave at any
token. Prints its address, then runs until ctrl-C or SIGTERM.

  --port N             default 8000; 0: any that is free
  --host ADDRESS       default 127.0.0.1, which only this machine reaches. On another address everyone who reaches it
                       may use the model: there is no password and no TLS
  --max-sequences N    answers that are made at once; default 8, fewer where memory is short. More requests wait
  --context N          tokens of a prompt and its answer; default: the model's, at most 8192, fewer where memory is short
  --name NAME          what clients call the model; default: the last part of its directory, of RUN/model the run's
  --device, --precision, --memory.gpu, --threads   as in 'megatrain generate': layers that do not fit stream
  --json               the address as an object: url, model, context, max_sequences

Obeyed: messages or prompt, max_tokens, max_completion_tokens, temperature (default 1), top_p, top_k, seed, stop, n,
stream, stream_options.include_usage. What would be ignored (tools, response_format, logprobs, penalties, ...) is refused
with 400. It is made for one person: requests have at most 8 MiB, 1024 answers wait, and there are no quotas.
)";

constexpr const char* kEvalDetails =
    R"(Asks the model every question of the file and prints the share of answers that are exactly right, white space at both
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
  --data.cache DIR     where tokenised datasets are kept, as in training
  --device, --precision, --memory.gpu, --threads   as in 'megatrain generate'
  --json               one object: exact_match, right, count, mismatches, tokens, seconds, tokens_per_s, loss,
                       perplexity, loss_tokens
)";

constexpr const char* kWatchDetails =
    R"(Reads run directories while they grow; the trainer knows nothing of it and opens no port. RUN need not be there yet.

In a terminal: a curve, the lanes of a recent step, memory by tier, time left, alerts. Keys: q quits, m takes the next
curve, x steps, tokens or time, l a logarithmic axis, s smoothing on or off, r the next run.

  --json               prints where each run is, one object a line
  --json --follow      a line for every step, evaluation, sample, alert and change of state, from the run's beginning;
                       ends when all runs have ended, with 0, or as the run did: its exit code, 128 + the signal that
                       stopped it, 137 when it was killed
  --http [PORT]        serves the page of 'megatrain report' at http://127.0.0.1:PORT (8484, or a free one), and lets it
                       grow; several runs are compared
  --host ADDRESS       with --http: where it listens. Whoever reaches the address can read the runs
  --alert-command CMD  is run by sh for every alert, which is one line of JSON on its standard input
  --alert-spike F      a loss above F times the median of the 50 before it is an alert; default 1.5; 0: never
  --alert-stall S      so many seconds without anything new are one; default: ten steps, and at least 120
  --alert-disk SIZE    less free than this where the run is; default 2GiB

Other alerts: a loss that is not finite, host memory that is nearly used up, a run that failed or was killed.
)";

std::vector<Verb> training_verbs() {
  return {
      {.name = "demo",
       .summary = "teach a small model arithmetic; a few minutes on two CPU cores",
       .usage = "[--seed N] [--steps N] [--run_dir DIR] [--device auto|cpu|cuda]",
       .details =
           "Teaches a small model two-digit addition from nothing, shows the loss fall, and asks it questions it\n"
           "has never seen, before and after. The model is exported to RUN/model.\n",
       .run = verb_demo},
      {.name = "train",
       .takes = "CONFIG.yaml",
       .summary = "train; RUN/model is a Hugging Face directory afterwards",
       .usage = "[--dotted.key=value ...]",
       .details =
           "Trains as CONFIG.yaml says. Options on the command line override the file. Paths are relative to the\n"
           "current directory. --resume goes on from the newest checkpoint of run_dir. SIGINT, SIGTERM and SIGHUP "
           "save,\n"
           "then stop; SIGUSR1 saves and goes on.\n\n"
           "Keys, by group; '--help optim' says what those of a group accept, '--help optim.lr' what one does:\n\n" +
           config_help(),
       .run = verb_train},
      {.name = "prepare",
       .takes = "CONFIG.yaml",
       .summary = "tokenise its datasets into the cache, and say what they came to",
       .usage = "[--dotted.key=value ...] [--out DIR]",
       .details =
           "Tokenises data.train and data.eval in parallel into the cache, where 'train' finds them; interrupted, it\n"
           "goes on from where it was. Prints samples, tokens, what is trained, and how full the packed sequences "
           "are.\n"
           "--out DIR also writes them, packed and in the order of the run, as tokens.bin (uint32), labels.bin and\n"
           "documents.bin. Train on them with data.tokens: DIR/tokens.bin; DIR/prepared.json says the rest.\n"
           "--skip-bad N leaves out up to N bad samples; without it the first one ends the run with file and line.\n",
       .options = {"--out"},
       .run = verb_prepare},
      {.name = "inspect data",
       .takes = "CONFIG.yaml",
       .summary = "what the trainer sees: text with what of it is trained",
       .usage = "[--dotted.key=value ...] [-n N] [--color auto|always|never]",
       .details = "The first N sequences of a run (3 unless given) as the trainer gets them: documents with file and "
                  "line, and\n"
                  "their text, what is trained in green on a terminal and in \u27e6\u27e7 elsewhere.\n",
       .options = {"-n", "--color"},
       .run = verb_inspect_data},
  };
}

std::vector<Verb> answering_verbs() {
  return {
      {.name = "generate",
       .takes = "MODEL|RUN",
       .summary = "let a model answer a prompt, or a file of them",
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
       .usage = "[--port N] [--host ADDRESS] [--max-sequences N] [options]",
       .details = kServeDetails,
       .options = with_loaded_model_options({"--port", "--host", "--max-sequences", "--context", "--name"}),
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
       .summary = "whether it fits, where, how fast, and what to change; --what-fits: every model",
       .usage = "[--machine NAME|FILE] [--ram SIZE] [--disk SIZE] [--price HOUR]\n"
                "    [--memory.gpu=24GiB --memory.host=100GiB --batch=32 ...] [--layers N] [--random SEED]\n"
                "megatrain plan --what-fits [--machine NAME|FILE] [--ram SIZE] [--disk SIZE]",
       .details = fmt::format(
           "Prints where weights, gradients and block inputs would live, tokens/s and what bounds them, what of a\n"
           "step is attention, the tokens a step needs to hide the link and the optimizer, what a checkpoint takes,\n"
           "and the longest context that fits; where it does not fit, the nearest changes under which it would (exit\n"
           "code 4). Allocates nothing; needs neither weights nor data.\n\n"
           "  --machine NAME   plans for a machine that need not be here, from data sheets: {}\n"
           "  --machine FILE   the same from what 'megatrain doctor --json' printed on that machine (FILE.json)\n"
           "  --ram SIZE       with so much host memory instead\n"
           "  --disk SIZE      with a drive that holds what memory does not; memory.nvme is a budget within it\n"
           "  --price HOUR     what an hour costs: prints the cost of a billion tokens\n"
           "  --what-fits      every preset by way of training: tokens/s, or no\n"
           "  --layers N       with N layers instead of the model's\n"
           "  --random SEED    some other valid plan\n\n"
           "'megatrain train --plan=FILE' uses a plan printed with --json. Presets: {}\n",
           machine_names(), fmt::join(preset_names(), ", ")),
       .options = {"--random", "--layers", "--machine", "--ram", "--disk", "--price"},
       .flags = {"--what-fits"},
       .run = verb_plan},
      {.name = "doctor",
       .summary = "what is wrong with this machine, and how fast it is; later plans use that",
       .usage = "[--dir DIR] [--out FILE] [--checks] [--device auto|cpu|cuda] [--threads N]",
       .details = "Measures link, host memory, disk, products and attention in under 20 s and keeps the profile in the "
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
       .summary = "follow runs: in the terminal, as JSON lines, or --http as a page that grows",
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
                  "step, memory by tier, configuration, samples. Works while the run goes on.\n",
       .options = {"--out"},
       .keys = false,
       .run = verb_report},
      {.name = "inspect",
       .takes = "MODEL|RUN",
       .summary = "what a model directory holds, or where a run stands",
       .usage = "[--tensors]",
       .details =
           "Of a Hugging Face directory (or Org/Name in the Hugging Face cache): family, parameters, shape, types,\n"
           "tokenizer, special ids, and what training it would need; --tensors lists every tensor. Of a run: where it\n"
           "stands. 'megatrain inspect data --help' is about data.\n",
       .flags = {"--tensors"},
       .keys = false,
       .run = verb_inspect},
      {.name = "export",
       .takes = "RUN --out DIR",
       .summary = "a Hugging Face directory or a GGUF file from a run's newest checkpoint",
       .usage = "[--dtype bf16|fp32 | --gguf f32|bf16|f16|q8_0]",
       .details =
           "Writes a Hugging Face directory from the newest state of a run (its last checkpoint, or RUN/model when "
           "that\n"
           "is newer); RUN may also be one checkpoint, RUN/checkpoints/step-NNNNNNNN. DIR must not be there yet.\n"
           "--dtype converts all weights; without it each keeps the type it was trained from.\n"
           "--gguf writes one file for llama.cpp, --out FILE.gguf, with tokenizer and chat template; RUN may also be "
           "a\n"
           "Hugging Face directory or Org/Name in the Hugging Face cache. Norms, biases and routers stay f32, and "
           "q8_0\n"
           "rounds as llama.cpp does.\n",
       .options = {"--out", "--dtype", "--gguf"},
       .keys = false,
       .run = verb_export},
      {.name = "hash",
       .takes = "RUN|DIR|FILE",
       .summary = "the hash of a state or a model",
       .details = "xxh3_128 over the logical bytes in name order: of a run's state (fp32 master and moments), of a "
                  "Hugging Face\n"
                  "directory, or of a safetensors file (stored bytes).\n",
       .keys = false,
       .run = verb_hash},
  };
}

std::vector<Verb> shell_verbs() {
  return {
      {.name = "completion",
       .takes = "bash|zsh|fish",
       .summary = "a script that completes verbs, options, keys and values in a shell",
       .details = "Prints the script. For bash 'source <(megatrain completion bash)' in ~/.bashrc, for zsh\n"
                  "'source <(megatrain completion zsh)' in ~/.zshrc, for fish 'megatrain completion fish | source' in\n"
                  "~/.config/fish/config.fish. An installation has the one for bash where bash-completion finds it.\n",
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
