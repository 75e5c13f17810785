// A run's configuration: a YAML file, then `--dotted.key=value` words of the command line over it.
//
// Every key is written once, in the table of config_keys.cc: it drives reading, the nearest known key of an error,
// config.resolved.yaml and the help text.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/config/key_names.h"
#include "megatrain/config/step_set.h"

namespace megatrain {

inline constexpr int64_t kMostContext = int64_t{1} << 21;  // tokens of a sequence, at most
inline constexpr int64_t kMostParts = 1024;                // of a micro-batch by mlp_chunk or head_chunk

// A dataset as the configuration names it: a file, a folder, or a name in dataset_info.json, and what is known of its
// form. `options` are names of columns ("columns.messages") and role words ("tags.user"), each only when given.
struct DatasetChoice {
  std::string path;
  std::string format = "auto";  // auto | messages | sharegpt | alpaca | alpaca_prompt | prompt | text
  double weight = 1;            // how often an epoch goes through it
  int64_t most = 0;             // the first samples that are used; 0: all
  int64_t most_percent = 0;     // or that part of them, rounded to the nearest
  std::map<std::string, std::string> options;
  bool operator==(const DatasetChoice&) const = default;
};

struct TrainConfig {
  struct Model {
    std::string path;    // Hugging Face directory
    std::string config;  // config.json, for random weights; exactly one of the two is given
    bool operator==(const Model&) const = default;
  };
  struct Data {
    std::string tokens;
    std::string dtype = "uint16";  // uint16 | uint32
    std::string documents;         // optional files are empty when not given
    std::string labels;
    std::string order;

    std::vector<DatasetChoice> train, eval;  // instead of tokens
    std::string info;                        // directory of a dataset_info.json
    double eval_split = 0;                   // below 1 a fraction of the training samples, else a number of them
    std::string tokenizer;                   // directory, or tokenizer.json; empty: the model's
    std::string chat_template;               // a .jinja file; empty: the model's own
    std::string train_on = "assistant";      // assistant | last | all
    std::string overlong = "error";          // error | truncate | drop | by_turn
    bool packing = true;
    bool shuffle = true;
    int64_t skip_bad = 0;
    int64_t max_samples = 0;  // of each dataset; 0: all
    std::string cache;        // empty: the user's cache directory
    bool operator==(const Data&) const = default;
  };
  struct Eval {
    int64_t every = 0;      // steps; 0: at the end alone
    double every_part = 0;  // above 0, instead: below 1 that part of the run, 1: an epoch
    int64_t patience = 0;   // evaluations without a better loss after which the run stops; 0: never
    bool keep_best = false;
    bool operator==(const Eval&) const = default;
  };
  struct Sample {
    int64_t every = 0;  // steps; 0: none
    std::vector<std::string> prompts;
    int64_t max_tokens = 128;
    bool operator==(const Sample&) const = default;
  };
  struct Optim {
    double lr = 1e-5;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0.01;
    double clip = 1.0;                  // largest global gradient norm; 0: no clipping
    std::string schedule = "constant";  // constant | linear | cosine | wsd
    double warmup = 0;                  // whole steps, or below 1 a fraction of `steps`
    int64_t warmup_most = 0;            // steps that a fraction comes to at most; 0: any
    double min_lr = 0.0;
    double decay = 0.1;  // wsd: the last part of the run's steps in which lr falls
    bool operator==(const Optim&) const = default;
  };
  struct Moe {                       // mixtures of experts
    std::optional<double> aux_loss;  // none: what config.json asks for
    double z_loss = 0;
    bool operator==(const Moe&) const = default;
  };
  struct State {
    std::string moments = "fp32";  // fp32 | bf16 | int8
    std::string master = "fp32";   // fp32 | stochastic
    bool operator==(const State&) const = default;
  };
  struct Memory {
    std::optional<int64_t> gpu_bytes;  // budgets; none: the plan measures the machine
    std::optional<int64_t> host_bytes;
    std::optional<int64_t> nvme_bytes;
    std::string nvme_path;       // empty: nothing lives on disk
    bool nvme_force = false;     // also on a network file system
    std::string state = "auto";  // auto | host
    bool operator==(const Memory&) const = default;
  };
  struct Dump {
    StepSet steps;  // the steps that `grads: true` and `state: true` mean
    StepSet grads;  // resolved: write grads-STEP.safetensors of exactly these
    StepSet state;  // resolved: write state-STEP.safetensors of exactly these; 0 is the initial state
    bool operator==(const Dump&) const = default;
  };
  struct Checkpoint {
    int64_t every = 0;      // steps; 0: none
    double every_part = 0;  // above 0, instead: below 1 that part of the run, 1: an epoch
    int64_t keep = 2;       // the newest that stay
    bool operator==(const Checkpoint&) const = default;
  };

  Model model;
  uint64_t seed = 0;
  std::string device = "auto";     // auto | cpu | cuda
  std::string precision = "bf16";  // bf16 | fp32
  Data data;
  int64_t seq_len = 1024;   // tokens of a sequence
  int64_t batch = 1;        // sequences of a step
  int64_t micro_batch = 1;  // sequences; divides batch
  // How long the run is: one of the three. With steps given as 0 it loads and exports only.
  int64_t steps = 0;
  double epochs = 0;   // passes over the training data
  int64_t tokens = 0;  // of all steps together, padding included
  // How epochs, warmup and fractions are counted: megatrain | transformers | axolotl (docs/reference/config.md).
  std::string conventions = "megatrain";
  int64_t head_chunk = 0;  // tokens of one chunk of the head; 0: chosen by size
  int64_t mlp_chunk = 0;   // tokens of one pass through a block, attention itself apart; 0: chosen by size
  Optim optim;
  Moe moe;
  Eval eval;
  Sample sample;
  std::vector<std::string> freeze;      // patterns over tensor names
  std::vector<std::string> train_only;  // patterns; unless empty, what matches none is frozen
  State state;
  Memory memory;
  int64_t threads = 0;  // CPU threads; 0: all
  std::string plan;     // plan file; empty: the plan is made here
  Dump dump;
  std::string run_dir = "runs/default";
  Checkpoint checkpoint;
  StepSet trace;  // steps whose lanes go to RUN/trace.json
  bool resume = false;

  // What keys of another trainer, given or not, became: a table for people. No key; empty where there are none.
  std::string translation;
  // What the file calls these keys, for messages. No key either.
  KeyNames names;
  // What LLaMA-Factory's key of this name says: sft (all samples have to be conversations) | pt (all have to be texts);
  // empty: nothing. No key of ours either.
  std::string stage;

  bool operator==(const TrainConfig&) const = default;
};

// What a verb cannot do without; `plan` and `bench` need less than `train`.
struct ConfigNeeds {
  bool model = true;
  bool data = true;   // unless steps is 0
  bool steps = true;  // or epochs, or tokens
  bool idle = false;  // keys without an effect (config/idle_keys.h) are not refused
};

// `overrides` are words as they stand on the command line: "--optim.lr=1e-4", or "--optim.lr", "1e-4"; a key that is
// true or false may stand alone ("--resume"). The last of equal overrides wins.
// Files of other trainers are understood (foreign/trainer.h): their keys, and for what is not given their
// defaults; the log has the table `translation` then. A trainer's mark says whose a file is. Keys of LLaMA-Factory and
// the Hugging Face trainer may stand in a file of ours, too. Throws Error(bad_config) "FILE:LINE: what is wrong, what
// is accepted", or "--key: ..." for an override; unknown keys are named all at once. Where `needs.data`, data.tokens of
// a prepared set bring their type, labels and documents (config/prepared_keys.h).
TrainConfig load_config(const std::string& path, const std::vector<std::string>& overrides = {},
                        const ConfigNeeds& needs = {});
// The same from text; `name` stands for the file in errors.
TrainConfig parse_config(const std::string& text, const std::string& name,
                         const std::vector<std::string>& overrides = {}, const ConfigNeeds& needs = {});

// Every key with its value; load_config reads it back to an equal configuration.
std::string resolved_yaml(const TrainConfig& config);

// True for a word "--dotted.key[=value]" whose key is known, so that a verb can tell overrides from its own options.
bool is_config_override(const std::string& word);

}  // namespace megatrain
