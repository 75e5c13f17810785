#include "megatrain/config/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <string_view>

#include "megatrain/base/edit_distance.h"
#include "megatrain/base/error.h"
#include "megatrain/base/nearest_name.h"

namespace megatrain {
namespace {

#define MEGATRAIN_FIELD(member) \
  [](TrainConfig & config) -> auto& { return config.member; }

constexpr int64_t kCount = 1'000'000'000;
constexpr int64_t kMostBatch = int64_t{1} << 16;  // beyond this, planning alone takes minutes
constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();

// Null, also when printed, means that epochs or tokens give the length of the run.
ConfigKey steps_key() {
  ConfigKey key =
      integer_key("steps", "max_steps num_steps train_steps", 0, kCount,
                  "Optimizer steps of the run; 0 loads the model and exports it. Give one of steps, epochs and tokens.",
                  MEGATRAIN_FIELD(steps));
  key.accepts += ", or null";
  key.read = [read = key.read](TrainConfig& config, const ConfigText& value) {
    return value.null || read(config, value);
  };
  key.write = [write = key.write](const TrainConfig& config) {
    return config.epochs > 0 || config.tokens > 0 ? std::string("null") : write(config);
  };
  return key;
}

// Also accepts "steps=5-6".
ConfigKey trace_key() {
  ConfigKey key =
      step_set_key("trace", "profile",
                   "Steps whose lanes go to RUN/trace.json, for Chrome's or Perfetto's viewer; steps=5-6 reads as 5-6.",
                   MEGATRAIN_FIELD(trace));
  key.read = [read = key.read](TrainConfig& config, ConfigText value) {
    constexpr std::string_view kSteps = "steps=";
    if (value.text.starts_with(kSteps)) value.text.erase(0, kSteps.size());
    return read(config, value);
  };
  return key;
}

std::vector<ConfigKey> model_keys() {
  return {
      path_key("model.path", "model.name_or_path model_name_or_path model",
               "Hugging Face model directory to train. Give this or model.config.", MEGATRAIN_FIELD(model.path)),
      path_key("model.config", "config model.config_file",
               "A config.json: train that architecture from random weights.", MEGATRAIN_FIELD(model.config)),
      path_key("model.adapter", "adapter_name_or_path lora_model_dir peft_model",
               "A PEFT directory, or Org/Name in the Hugging Face cache: train its adapters further. Default: new "
               "adapters, if "
               "adapter.rank is given.",
               MEGATRAIN_FIELD(model.adapter)),
  };
}

std::vector<ConfigKey> compute_keys() {
  return {
      natural_key("seed", "random_seed", "Seed of every random number of the run.", MEGATRAIN_FIELD(seed)),
      choice_key("device", "accelerator", {"auto", "cpu", "cuda"},
                 "Where to compute; auto takes the GPU when there is a usable one.", MEGATRAIN_FIELD(device)),
      choice_key(
          "precision", "dtype torch_dtype mixed_precision", {"bf16", "fp32"},
          "Arithmetic of the device; the master and the optimizer state are fp32 in both, unless state says otherwise.",
          MEGATRAIN_FIELD(precision)),
  };
}

std::vector<ConfigKey> data_keys() {
  return {
      path_key("data.tokens", "data.path dataset data", "Raw little-endian token ids.", MEGATRAIN_FIELD(data.tokens)),
      choice_key("data.dtype", "", {"uint16", "uint32"}, "Type of the ids in data.tokens; a prepared set says its own.",
                 MEGATRAIN_FIELD(data.dtype)),
      path_key("data.documents", "data.offsets",
               "uint64 token offsets at which documents start; attention and positions restart there.",
               MEGATRAIN_FIELD(data.documents)),
      path_key("data.labels", "data.mask", "int32 label of each token, -100: not trained. Default: the tokens.",
               MEGATRAIN_FIELD(data.labels)),
      path_key("data.order", "data.shuffle",
               "uint64 sequence numbers, used one after another. Default: 0, 1, 2, ... starting over after the last.",
               MEGATRAIN_FIELD(data.order)),
      datasets_key("data.train", "datasets train_dataset train_file data.files",
                   "Datasets to train on: JSONL or JSON of conversations (messages, ShareGPT, Alpaca, prompt and "
                   "completion), text files, folders of them, or names in dataset_info.json.",
                   MEGATRAIN_FIELD(data.train)),
      datasets_key("data.eval", "validation_file data.validation", "Datasets to evaluate on.",
                   MEGATRAIN_FIELD(data.eval)),
      path_key("data.info", "data.dataset_info", "Directory of a dataset_info.json, for datasets given by name.",
               MEGATRAIN_FIELD(data.info)),
      real_key("data.eval_split", "test_size data.val_size", {0, kCount},
               "Training samples kept for evaluation: below 1 a fraction, else a number of them.",
               MEGATRAIN_FIELD(data.eval_split)),
      path_key("data.tokenizer", "tokenizer tokenizer_name",
               "Directory with a tokenizer.json, or the file. Default: the model's.", MEGATRAIN_FIELD(data.tokenizer)),
      path_key("data.template", "chat_template",
               "A built-in chat template by name, such as chatml, llama3 or qwen3, or a Jinja file. Default: the "
               "model's own "
               "chat template.",
               MEGATRAIN_FIELD(data.chat_template)),
      choice_key("data.train_on", "train_on_inputs", {"assistant", "last", "all"},
                 "What of a conversation is trained: every turn of the assistant, the last one, or every token.",
                 MEGATRAIN_FIELD(data.train_on)),
      choice_key("data.overlong", "truncation data.long", {"error", "truncate", "drop", "by_turn", "keep_answer"},
                 "A conversation of more than seq_len tokens ends the run, is cut, is left out, or by_turn: the prompt "
                 "and the answer of each turn are cut, as LLaMA-Factory does, or keep_answer: its oldest turns are "
                 "left out, then the end of the system turn, never the last question and answer. Text is cut into "
                 "pieces of seq_len in any case.",
                 MEGATRAIN_FIELD(data.overlong)),
      bool_key("data.packing", "sample_packing", "Put several samples into a sequence, each attending only to itself.",
               MEGATRAIN_FIELD(data.packing)),
      bool_key("data.shuffle", "shuffle", "A new order in every epoch, a function of seed and epoch.",
               MEGATRAIN_FIELD(data.shuffle)),
      integer_key("data.skip_bad", "skip_bad", 0, kCount, "Bad samples to leave out and count before giving up.",
                  MEGATRAIN_FIELD(data.skip_bad)),
      integer_key("data.max_samples", "", 0, kCount, "The first samples of each dataset that are used; 0: all.",
                  MEGATRAIN_FIELD(data.max_samples)),
      path_key("data.cache", "cache_dir", "Where tokenised datasets are kept. Default: the user's cache directory.",
               MEGATRAIN_FIELD(data.cache)),
  };
}

std::vector<ConfigKey> step_keys() {
  return {
      integer_key("seq_len", "sequence_length max_seq_len block_size context_length", 2, kMostContext,
                  "Tokens of a sequence.", MEGATRAIN_FIELD(seq_len)),
      integer_key("batch", "batch_size global_batch_size train_batch_size", 1, kMostBatch, "Sequences of a step.",
                  MEGATRAIN_FIELD(batch)),
      integer_key("micro_batch", "micro_batch_size per_device_train_batch_size", 1, kCount,
                  "Sequences that pass through a layer at once; divides batch. Not given: the most that hold at most "
                  "8192 tokens.",
                  MEGATRAIN_FIELD(micro_batch)),
      steps_key(),
      length_key("epochs", "num_epochs n_epochs", "a number above 0, at most 1000000",
                 "Passes over the training data; 0.5 is half of one.", 1e6, MEGATRAIN_FIELD(epochs)),
      length_key("tokens", "max_tokens train_tokens", "a whole number above 0",
                 "Tokens of all steps together, padding included.", std::numeric_limits<int64_t>::max() / 4,
                 MEGATRAIN_FIELD(tokens)),
      choice_key(
          "conventions", "", {"megatrain", "transformers", "axolotl"},
          "How epochs, warmup and fractions are counted. transformers, as the Hugging Face trainer does: the last "
          "step of an epoch of data.train holds what is left of it, warmup starts at a rate of 0, fractions are "
          "rounded up, and checkpoint.every saves the last step too. axolotl: the same, with Axolotl's number of steps "
          "and its warmup, rounded down.",
          MEGATRAIN_FIELD(conventions)),
  };
}

std::vector<ConfigKey> chunk_keys() {
  return {
      integer_key("head_chunk", "", 0, kMostTokens, "Tokens whose logits exist at once; 0: chosen by size.",
                  MEGATRAIN_FIELD(head_chunk)),
      integer_key("mlp_chunk", "", 0, kMostTokens,
                  "Tokens of one pass through a block's matmuls and norms; 0: chosen by size.",
                  MEGATRAIN_FIELD(mlp_chunk)),
  };
}

std::vector<ConfigKey> freeze_keys() {
  return {
      patterns_key(
          "freeze", "frozen freeze_modules freeze_patterns",
          "Tensors that are not trained, by patterns over their names: * any text, ? one character, [0-9] a set.",
          MEGATRAIN_FIELD(freeze)),
      patterns_key("train_only", "trainable trainable_modules unfrozen",
                   "Patterns as in freeze: a tensor that matches none of them is frozen.", MEGATRAIN_FIELD(train_only)),
  };
}

std::vector<ConfigKey> adapter_keys() {
  return {
      integer_key("adapter.rank", "lora_rank lora_r r lora.r lora.rank", 0, kMostRank,
                  "Train LoRA adapters of this rank instead of the weights; 0: train the weights. 8 if another key of "
                  "adapter is given.",
                  MEGATRAIN_FIELD(adapter.rank)),
      real_key("adapter.alpha", "lora_alpha lora.alpha", {.least = kLeastAlpha, .most = kMostAlpha},
               "What adapters add is multiplied by alpha / rank.", MEGATRAIN_FIELD(adapter.alpha)),
      real_key("adapter.dropout", "lora_dropout lora.dropout", {.least = 0, .most = kMostDropout},
               "The share of an adapter's input that is dropped in training.", MEGATRAIN_FIELD(adapter.dropout)),
      modules_key("adapter.targets", "target_modules lora_target lora_target_modules",
                  "Modules with an adapter: ends of their names, or one regular expression for whole names. "
                  "all-linear: every matmul of a layer but routers and experts; null: none.",
                  MEGATRAIN_FIELD(adapter.targets)),
      module_ends_key("adapter.target_parameters", "target_parameters lora_target_parameters",
                      "Parameters of experts with an adapter for each expert, by the ends of their names: "
                      "mlp.experts.gate_up_proj, mlp.experts.down_proj.",
                      MEGATRAIN_FIELD(adapter.target_parameters)),
      modules_key("adapter.exclude", "exclude_modules", "Modules without an adapter, written as in adapter.targets.",
                  MEGATRAIN_FIELD(adapter.exclude)),
      bool_key("adapter.rslora", "use_rslora", "Multiply by alpha / sqrt(rank) instead of alpha / rank.",
               MEGATRAIN_FIELD(adapter.rslora)),
      bool_key("adapter.dora", "use_dora lora.dora",
               "DoRA: also train a magnitude for each row of the adapted weights. Not for experts.",
               MEGATRAIN_FIELD(adapter.dora)),
      choice_key("adapter.bias", "bias", {"none", "all", "lora_only"},
                 "Biases of the base that are trained beside the adapters: all of them, or those of adapted modules.",
                 MEGATRAIN_FIELD(adapter.bias)),
      choice_key("adapter.init", "init_lora_weights", {"kaiming", "gaussian"},
                 "How the first half of an adapter starts, as in PEFT; the second starts at zero.",
                 MEGATRAIN_FIELD(adapter.init)),
      module_numbers_key("adapter.rank_pattern", "rank_pattern", 1, kMostRank,
                         "Ranks of some modules, by regular expressions for the ends of their names.",
                         MEGATRAIN_FIELD(adapter.rank_pattern)),
      module_numbers_key("adapter.alpha_pattern", "alpha_pattern", kLeastAlpha, kMostAlpha, "The same for alpha.",
                         MEGATRAIN_FIELD(adapter.alpha_pattern)),
      module_ends_key("adapter.also_train", "modules_to_save additional_target lora_modules_to_save",
                      "Modules that are trained whole beside the adapters, by the ends of their names: lm_head, norm.",
                      MEGATRAIN_FIELD(adapter.also_train)),
      token_indices_key("adapter.trainable_token_indices", "trainable_token_indices peft_trainable_token_indices",
                        "Ids of tokens whose rows of the embedding are trained, the rest of it staying frozen; or such "
                        "a list for each of embed_tokens and lm_head.",
                        MEGATRAIN_FIELD(adapter.trainable_token_indices)),
  };
}

std::vector<ConfigKey> optim_keys() {
  return {
      real_key("optim.lr", "learning_rate optim.learning_rate optim.max_lr", {0, 1000},
               "Peak learning rate. 1e-4 with adapters.", MEGATRAIN_FIELD(optim.lr)),
      real_key("optim.beta1", "adam_beta1", {.least = 0, .most = 1, .open = true}, "Decay of the first moment.",
               MEGATRAIN_FIELD(optim.beta1)),
      real_key("optim.beta2", "adam_beta2", {.least = 0, .most = 1, .open = true}, "Decay of the second moment.",
               MEGATRAIN_FIELD(optim.beta2)),
      real_key("optim.eps", "adam_epsilon optim.epsilon", {1e-30, 1}, "Added to the root of the second moment.",
               MEGATRAIN_FIELD(optim.eps)),
      real_key("optim.weight_decay", "optim.wd", {0, 1000},
               "Decoupled weight decay; never on norms, biases and other 1-D tensors.",
               MEGATRAIN_FIELD(optim.weight_decay)),
      real_key("optim.clip", "max_grad_norm grad_clip gradient_clipping",
               {.least = 0, .most = 1e30, .null_is_zero = true},
               "Largest global gradient norm; 0 or null: no clipping.", MEGATRAIN_FIELD(optim.clip)),
      choice_key("optim.schedule", "lr_scheduler_type scheduler", {"constant", "linear", "cosine", "wsd"},
                 "How lr changes after warmup.", MEGATRAIN_FIELD(optim.schedule)),
      real_key("optim.warmup", "warmup_steps optim.warmup_steps warmup_ratio", {0, kCount},
               "Steps in which lr rises linearly to optim.lr; below 1, a fraction of steps.",
               MEGATRAIN_FIELD(optim.warmup)),
      integer_key("optim.warmup_most", "", 0, kCount,
                  "The most steps that a fraction in optim.warmup comes to; 0: any.",
                  MEGATRAIN_FIELD(optim.warmup_most)),
      real_key("optim.min_lr", "", {0, 1000}, "Where linear, cosine and wsd end; at most optim.lr.",
               MEGATRAIN_FIELD(optim.min_lr)),
      real_key("optim.decay", "optim.decay_fraction", {1e-9, 1}, "wsd: the last part of the steps, in which lr falls.",
               MEGATRAIN_FIELD(optim.decay)),
  };
}

std::vector<ConfigKey> moe_keys() {
  return {
      coefficient_key("moe.aux_loss", "router_aux_loss_coef aux_loss_coef router.aux_loss", 1000,
                      "Coefficient of the loss that balances the experts of the whole step; 0: off. auto: "
                      "router_aux_loss_coef of config.json where it says output_router_logits, else 0; model: that of "
                      "config.json in any case.",
                      MEGATRAIN_FIELD(moe.aux_loss), MEGATRAIN_FIELD(moe.aux_loss_of_model)),
      real_key("moe.z_loss", "router_z_loss_coef z_loss_coef moe_z_loss_coef router.z_loss", {0, 1000},
               "Coefficient of the mean squared log-sum-exp of the router's logits; 0: off.",
               MEGATRAIN_FIELD(moe.z_loss)),
  };
}

std::vector<ConfigKey> eval_keys() {
  return {
      every_key("eval.every", "eval_interval", kCount,
                "Steps between evaluations, a part of the run, or epoch; 0: only at the end, if there is data to "
                "evaluate on.",
                MEGATRAIN_FIELD(eval.every), MEGATRAIN_FIELD(eval.every_part)),
      integer_key("eval.patience", "early_stopping_patience", 0, kCount,
                  "Evaluations in a row without a lower loss after which the run ends; 0: never.",
                  MEGATRAIN_FIELD(eval.patience)),
      bool_key("eval.keep_best", "keep_best",
               "Write the model of the lowest evaluation loss to RUN/best, each time it is one.",
               MEGATRAIN_FIELD(eval.keep_best)),
  };
}

std::vector<ConfigKey> sample_keys() {
  return {
      integer_key("sample.every", "", 0, kCount, "Steps between answers to sample.prompts; 0: none.",
                  MEGATRAIN_FIELD(sample.every)),
      texts_key("sample.prompts", "",
                "What the samples answer: as a user's message where the model has a chat template, else as text.",
                MEGATRAIN_FIELD(sample.prompts)),
      integer_key("sample.max_tokens", "max_new_tokens", 1, 1'000'000, "The longest answer, in tokens.",
                  MEGATRAIN_FIELD(sample.max_tokens)),
  };
}

std::vector<ConfigKey> state_keys() {
  return {
      choice_key("state.moments", "", {"fp32", "bf16", "int8"},
                 "How the optimizer's moments are stored: 4, 2 or 1 byte each. fp32 is exact; the others save memory "
                 "and change the run (docs/numerics.md).",
                 MEGATRAIN_FIELD(state.moments)),
      choice_key(
          "state.master", "", {"fp32", "stochastic"},
          "How weights are stored between steps: fp32 is exact; stochastic keeps only bf16, rounded stochastically.",
          MEGATRAIN_FIELD(state.master)),
  };
}

std::vector<ConfigKey> memory_keys() {
  return {
      budget_key("memory.gpu", "memory.hbm memory.device", "GPU memory the run may use.",
                 MEGATRAIN_FIELD(memory.gpu_bytes)),
      budget_key("memory.host", "memory.ram memory.cpu", "Host memory the run may use.",
                 MEGATRAIN_FIELD(memory.host_bytes)),
      budget_key("memory.nvme", "memory.disk",
                 "Disk that state, gradients, block inputs and kept outputs may take when host memory does not hold "
                 "them; auto: nine tenths of what is free in memory.nvme_path.",
                 MEGATRAIN_FIELD(memory.nvme_bytes)),
      path_key("memory.nvme_path", "nvme_path memory.disk_path",
               "A directory on an NVMe drive for optimizer state while the run lasts; nothing stays there. Default: no "
               "state lives on disk.",
               MEGATRAIN_FIELD(memory.nvme_path)),
      bool_key("memory.nvme_force", "", "Use memory.nvme_path even on a network file system.",
               MEGATRAIN_FIELD(memory.nvme_force)),
      choice_key("memory.state", "", {"auto", "host"},
                 "Where the optimizer state lives; auto keeps some on the GPU when there is room.",
                 MEGATRAIN_FIELD(memory.state)),
      choice_key(
          "memory.base", "", {"auto", "host", "files"},
          "Where the frozen weights beside adapters live when they are not on the GPU: in host memory, or in the "
          "model's own files, from which each step reads them. auto: in files when host memory does not hold "
          "them.",
          MEGATRAIN_FIELD(memory.base)),
  };
}

std::vector<ConfigKey> plan_keys() {
  return {
      integer_key("threads", "num_threads", 0, 4096, "CPU threads; 0: all of this machine's.",
                  MEGATRAIN_FIELD(threads)),
      path_key("plan", "", "A plan from `megatrain plan --json`. Default: made for this machine.",
               MEGATRAIN_FIELD(plan)),
  };
}

std::vector<ConfigKey> dump_keys() {
  return {
      step_set_key("dump.steps", "",
                   "Steps (from 1) that dump.grads and dump.state mean when they are true. Alone, it dumps both.",
                   MEGATRAIN_FIELD(dump.steps)),
      step_flag_key("dump.grads", "",
                    "Write RUN/grads-STEP.safetensors; true: at dump.steps, or at all when none are given.",
                    MEGATRAIN_FIELD(dump.grads), MEGATRAIN_FIELD(dump.steps)),
      step_flag_key(
          "dump.state", "",
          "Write RUN/state-STEP.safetensors; true: at dump.steps, or at all when none are given; 0: initial state.",
          MEGATRAIN_FIELD(dump.state), MEGATRAIN_FIELD(dump.steps)),
      trace_key(),
  };
}

std::vector<ConfigKey> directory_keys() {
  return {
      path_key("run_dir", "output_dir out_dir", "Where metrics, dumps, checkpoints and the model go.",
               MEGATRAIN_FIELD(run_dir)),
      every_key("checkpoint.every", "save_steps checkpoint.interval", kCount,
                "Steps between checkpoints, a part of the run, or epoch; 0: none.", MEGATRAIN_FIELD(checkpoint.every),
                MEGATRAIN_FIELD(checkpoint.every_part)),
      integer_key("checkpoint.keep", "save_total_limit", 1, kCount, "How many of the newest checkpoints stay.",
                  MEGATRAIN_FIELD(checkpoint.keep)),
      bool_key("resume", "resume_from_checkpoint", "Continue from the newest checkpoint of run_dir.",
               MEGATRAIN_FIELD(resume)),
  };
}

std::vector<ConfigKey> watch_keys() {
  return {
      choice_key("guard", "on_divergence", {"warn", "stop"},
                 "What follows when the training loss diverges: a warning, or the end of the run with exit code 6.",
                 MEGATRAIN_FIELD(guard)),
      choices_key("track.to", "report_to trackers loggers", {"wandb", "mlflow", "trackio", "tensorboard"},
                  "Programs that show the run: train prints the command that sends it there, while it runs or "
                  "afterwards.",
                  MEGATRAIN_FIELD(track.to)),
      text_key("track.project", "wandb_project mlflow_experiment_name project",
               "The project of the run there, in MLflow the experiment. Default: megatrain.",
               MEGATRAIN_FIELD(track.project)),
      text_key("track.name", "run_name wandb_name", "The run's name there. Default: the last part of run_dir.",
               MEGATRAIN_FIELD(track.name)),
  };
}

// The order of the help text and of config.resolved.yaml.
std::vector<ConfigKey> make_keys() {
  std::vector<ConfigKey> keys;
  for (const auto group :
       {model_keys, compute_keys, data_keys, step_keys, chunk_keys, freeze_keys, adapter_keys, optim_keys, moe_keys,
        eval_keys, sample_keys, state_keys, memory_keys, plan_keys, dump_keys, directory_keys, watch_keys}) {
    for (ConfigKey& key : group()) keys.push_back(std::move(key));
  }
  return keys;
}

#undef MEGATRAIN_FIELD

const ConfigKey* first_of_section(const std::string& section) {  // nullptr if there is no such section
  for (const ConfigKey& key : config_keys())
    if (!section.empty() && config_section(key.name) == section) return &key;
  return nullptr;
}

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

// Compares the full names, and the last parts alone plus 1 in case the section differs. A longer form of a known word
// ("optimizer") has distance 1.
int64_t name_distance(const std::string& written, const std::string& known) {
  const bool longer = written.find('.') == std::string::npos && written.starts_with(known) && known.size() >= 4 &&
                      written.size() <= 2 * known.size();
  if (longer && written != known) return 1;
  return std::min(edit_distance(written, known), 1 + edit_distance(last_part(written), last_part(known)));
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = make_keys();
  return keys;
}

const ConfigKey* find_config_key(const std::string& name) {
  for (const ConfigKey& key : config_keys())
    if (key.name == name) return &key;
  return nullptr;
}

std::string config_section(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

bool is_config_section(const std::string& name) { return first_of_section(name) != nullptr; }

std::string section_sentence(const std::string& where, const std::string& name) {
  return fmt::format("{}: '{}' is a section of keys, expected keys such as '{}' in it", where, name,
                     first_of_section(name)->name);
}

const ConfigKey& known_config_key(const std::string& where, const std::string& name) {
  if (const ConfigKey* key = find_config_key(name)) return *key;
  if (is_config_section(name)) fail_config(section_sentence(where, name));
  const std::string near = nearest_config_key(name);
  fail_config(
      fmt::format("{}: unknown key '{}'; {}", where, name,
                  near.empty() ? "`megatrain train --help` lists the keys" : fmt::format("did you mean '{}'?", near)));
}

std::string nearest_config_key(const std::string& unknown) {
  NearestName nearest(unknown, most_typing_errors(last_part(unknown)), name_distance);
  for (const ConfigKey& key : config_keys()) nearest.consider(key.name);
  for (const ConfigKey& key : config_keys()) {
    const std::string section = config_section(key.name);
    if (!section.empty()) nearest.consider(section);
    std::stringstream other_names(key.other_names);
    for (std::string habit; other_names >> habit;) nearest.consider(habit, key.name);
  }
  return nearest.found();
}

}  // namespace megatrain
