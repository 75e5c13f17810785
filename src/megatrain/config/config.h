// A run's configuration: a YAML file, overridden by `--dotted.key=value` arguments of the command line.
//
// Each key is defined once, in the table of config_keys.cc. Parsing, the suggested key of an error,
// config.resolved.yaml and the help text all come from it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/config/key_names.h"
#include "megatrain/config/step_set.h"

namespace megatrain {

inline constexpr int64_t kMostContext = int64_t{1} << 21;                           // maximum sequence length in tokens
inline constexpr int64_t kMostRank = 65536;                                         // of an adapter
inline constexpr double kLeastAlpha = 1e-6, kMostAlpha = 1e6, kMostDropout = 0.99;  // of an adapter
inline constexpr int64_t kMostParts = 1024;  // maximum number of chunks of a micro-batch (mlp_chunk, head_chunk)

// A dataset as the configuration names it: a file, a folder or a name in dataset_info.json, with what is known of its
// format. `options` has the given column names ("columns.messages") and role tags ("tags.user").
struct DatasetChoice {
  std::string path;
  std::string format = "auto";  // auto | messages | sharegpt | alpaca | alpaca_prompt | prompt | text
  double weight = 1;            // passes over this dataset per epoch
  int64_t most = 0;             // use only the first samples; 0: all
  int64_t most_percent = 0;     // or this percentage of them, rounded to the nearest
  std::map<std::string, std::string> options;
  bool operator==(const DatasetChoice&) const = default;
};

struct TrainConfig {
  struct Model {
    std::string path;     // Hugging Face directory
    std::string config;   // config.json, for random weights; exactly one of the two is given
    std::string adapter;  // a PEFT directory whose adapters are trained further; empty: new ones
    bool operator==(const Model&) const = default;
  };
  struct Data {
    std::string tokens;
    std::string dtype = "uint16";  // uint16 | uint32
    std::string documents;         // the optional files are empty when not given
    std::string labels;
    std::string order;

    std::vector<DatasetChoice> train, eval;  // instead of tokens
    std::string info;                        // directory of a dataset_info.json
    double eval_split = 0;                   // below 1 a fraction of the training samples, otherwise a number of them
    std::string tokenizer;                   // directory, or tokenizer.json; empty: the model's
    std::string chat_template;               // a built-in's name or a .jinja file; empty: the model's own
    std::string train_on = "assistant";      // assistant | last | all
    std::string overlong = "error";          // error | truncate | drop | by_turn | keep_answer
    bool packing = true;
    bool shuffle = true;
    int64_t skip_bad = 0;
    int64_t max_samples = 0;  // per dataset; 0: all
    std::string cache;        // empty: the user's cache directory
    bool operator==(const Data&) const = default;
  };
  struct Eval {
    int64_t every = 0;      // steps; 0: only at the end
    double every_part = 0;  // if above 0, used instead: below 1 a fraction of the run, 1 an epoch
    int64_t patience = 0;   // stop after this many evaluations without a lower loss; 0: never
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
    double clip = 1.0;                  // maximum global gradient norm; 0: no clipping
    std::string schedule = "constant";  // constant | linear | cosine | wsd
    double warmup = 0;                  // steps, or below 1 a fraction of `steps`
    int64_t warmup_most = 0;            // maximum number of steps for a fraction; 0: no limit
    double min_lr = 0.0;
    double decay = 0.1;  // wsd: the fraction of steps at the end in which lr falls
    bool operator==(const Optim&) const = default;
  };
  struct Adapter {     // LoRA; the keys mean what PEFT's LoraConfig means
    int64_t rank = 0;  // 0: no adapters, all weights are trained
    double alpha = 8;
    double dropout = 0;
    std::vector<std::string> targets = {"all-linear"};  // names of modules, or one regular expression
    std::vector<std::string> target_parameters;         // of all experts of a layer
    std::vector<std::string> exclude;
    bool rslora = false;
    bool dora = false;
    std::string bias = "none";     // none | all | lora_only: the biases that are trained, too
    std::string init = "kaiming";  // kaiming | gaussian
    std::vector<std::pair<std::string, double>> rank_pattern, alpha_pattern;  // by regular expressions of modules
    std::vector<std::string> also_train;                                      // names of modules trained whole
    // By module, embed_tokens or lm_head: tokens whose rows of its table are trained.
    std::vector<std::pair<std::string, std::vector<int64_t>>> trainable_token_indices;
    bool operator==(const Adapter&) const = default;
  };
  struct Moe {                       // mixtures of experts
    std::optional<double> aux_loss;  // none: as in config.json
    bool aux_loss_of_model = false;  // with none: its coefficient, even without output_router_logits
    double z_loss = 0;
    bool operator==(const Moe&) const = default;
  };
  struct State {
    std::string moments = "fp32";  // fp32 | bf16 | int8
    std::string master = "fp32";   // fp32 | stochastic
    bool operator==(const State&) const = default;
  };
  struct Memory {
    std::optional<int64_t> gpu_bytes;  // budgets; none: measured from the machine
    std::optional<int64_t> host_bytes;
    std::optional<int64_t> nvme_bytes;
    std::string nvme_path;       // empty: nothing spills to disk
    bool nvme_force = false;     // allow a network file system
    std::string state = "auto";  // auto | host
    std::string base = "auto";   // auto | host | files
    bool operator==(const Memory&) const = default;
  };
  struct Dump {
    StepSet steps;  // the steps meant by `grads: true` and `state: true`
    StepSet grads;  // resolved: the steps that write grads-STEP.safetensors
    StepSet state;  // resolved: the steps that write state-STEP.safetensors; 0 is the initial state
    bool operator==(const Dump&) const = default;
  };
  struct Track {                  // programs that show runs; examples/track follows a run for them
    std::vector<std::string> to;  // wandb | mlflow | trackio | tensorboard
    std::string project;          // empty: megatrain
    std::string name;             // of the run there; empty: the last part of run_dir
    bool operator==(const Track&) const = default;
  };
  struct Checkpoint {
    int64_t every = 0;      // steps; 0: none
    double every_part = 0;  // if above 0, used instead: below 1 a fraction of the run, 1 an epoch
    int64_t keep = 2;       // how many of the newest are kept
    bool operator==(const Checkpoint&) const = default;
  };

  Model model;
  uint64_t seed = 0;
  std::string device = "auto";     // auto | cpu | cuda
  std::string precision = "bf16";  // bf16 | fp32
  Data data;
  int64_t seq_len = 1024;   // tokens per sequence
  int64_t batch = 1;        // sequences per step
  int64_t micro_batch = 1;  // sequences per micro-batch; divides batch
  // Length of the run: exactly one of the three is given. `steps: 0` loads the model and exports it.
  int64_t steps = 0;
  double epochs = 0;   // passes over the training data
  int64_t tokens = 0;  // total over all steps, padding included
  // How epochs, warmup and fractions are counted: megatrain | transformers | axolotl (docs/reference/config.md).
  std::string conventions = "megatrain";
  int64_t head_chunk = 0;  // tokens per chunk of the head; 0: chosen by size
  int64_t mlp_chunk = 0;   // tokens per pass through a block, except attention itself; 0: chosen by size
  Optim optim;
  Adapter adapter;
  Moe moe;
  Eval eval;
  Sample sample;
  std::vector<std::string> freeze;      // patterns over tensor names
  std::vector<std::string> train_only;  // patterns; if not empty, everything that matches none is frozen
  State state;
  Memory memory;
  int64_t threads = 0;  // CPU threads; 0: all
  std::string plan;     // plan file; empty: a plan is made
  Dump dump;
  std::string run_dir = "runs/default";
  Checkpoint checkpoint;
  std::string guard = "warn";  // warn | stop: what follows when the loss diverges
  Track track;
  StepSet trace;  // steps whose actions are written to RUN/trace.json
  bool resume = false;

  // How another trainer's keys and defaults were translated: a table for people. Not a key. Empty for files of ours.
  std::string translation;
  // What the user's file calls these keys, for messages. Not a key.
  KeyNames names;
  // LLaMA-Factory's `stage`: sft (all samples must be conversations) or pt (all must be plain text); empty if not
  // given. Not a key of ours.
  std::string stage;

  bool operator==(const TrainConfig&) const = default;
};

// What a verb requires; `plan` and `bench` need less than `train`.
struct ConfigNeeds {
  bool model = true;
  bool data = true;   // unless steps is 0
  bool steps = true;  // or epochs, or tokens
  bool idle = false;  // true: keys without an effect (config/idle_keys.h) are accepted
};

// Reads a configuration file with `overrides` from the command line. An override is "--optim.lr=1e-4", or the two words
// "--optim.lr", "1e-4"; a boolean key may stand alone ("--resume"). If a key is repeated, the last one wins.
//
// Files of other trainers are accepted (foreign/trainer.h), recognised by keys that only that trainer has. Their
// defaults apply to what is not given, and the log shows the table `translation`. Keys of LLaMA-Factory and the Hugging
// Face trainer are also accepted in a file of ours.
//
// If `needs.data`, a prepared set given as data.tokens supplies its dtype, labels and documents
// (config/prepared_keys.h).
//
// Throws Error(bad_config) "FILE:LINE: what is wrong, what is accepted", or "--key: ..." for an override. All unknown
// keys are reported together.
TrainConfig load_config(const std::string& path, const std::vector<std::string>& overrides = {},
                        const ConfigNeeds& needs = {});
// The same from text; errors use `name` as the file name.
TrainConfig parse_config(const std::string& text, const std::string& name,
                         const std::vector<std::string>& overrides = {}, const ConfigNeeds& needs = {});

// Every key with its value. load_config reads it back to an equal configuration.
std::string resolved_yaml(const TrainConfig& config);

// Whether a word is "--dotted.key[=value]" with a known key. This is how a verb tells overrides from its own options.
bool is_config_override(const std::string& word);

}  // namespace megatrain
