#include "megatrain/train/config_aliases.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

// The value is ours as it stands.
const std::map<std::string, std::string>& renamed() {
  static const std::map<std::string, std::string> kRenamed = {
      {"model_name_or_path", "model.path"},
      {"dataset", "data.train"},
      {"eval_dataset", "data.eval"},
      {"dataset_dir", "data.info"},
      {"cutoff_len", "seq_len"},
      {"max_samples", "data.max_samples"},
      {"val_size", "data.eval_split"},
      {"packing", "data.packing"},
      {"neat_packing", "data.packing"},
      {"learning_rate", "optim.lr"},
      {"num_train_epochs", "epochs"},
      {"weight_decay", "optim.weight_decay"},
      {"adam_beta1", "optim.beta1"},
      {"adam_beta2", "optim.beta2"},
      {"adam_epsilon", "optim.eps"},
      {"max_grad_norm", "optim.clip"},
      {"warmup_ratio", "optim.warmup"},
      {"warmup_steps", "optim.warmup"},
      {"output_dir", "run_dir"},
      {"save_steps", "checkpoint.every"},
      {"save_total_limit", "checkpoint.keep"},
      {"eval_steps", "eval.every"},
      {"early_stopping_steps", "eval.patience"},
      {"load_best_model_at_end", "eval.keep_best"},
      {"skip-bad", "data.skip_bad"},
  };
  return kRenamed;
}

// Asks for nothing here; why not.
const std::map<std::string, std::string>& needless() {
  const char* const plan = "the plan decides what is recomputed and where state lives";
  const char* const always = "megatrain does this always";
  const char* const data = "tokenising is parallel and cached by itself";
  const char* const one = "there is one process and one GPU";
  static const std::map<std::string, std::string> kNeedless = {
      {"template", "the model's own chat template is used; data.template names another"},
      {"deepspeed", plan},
      {"gradient_checkpointing", plan},
      {"disable_gradient_checkpointing", plan},
      {"flash_attn", "attention is always the fused kernel"},
      {"enable_liger_kernel", "the kernels are always fused"},
      {"bf16", "precision is bf16 with fp32 master weights unless precision says fp32"},
      {"pure_bf16", "master weights and optimizer state are always fp32"},
      {"fp16", "bf16 is used, which needs no loss scaling"},
      {"tf32", "no product ever uses tf32"},
      {"logging_steps", "every step is logged"},
      {"logging_first_step", always},
      {"logging_dir", "TensorBoard files go to RUN/tensorboard"},
      {"report_to", "TensorBoard files and metrics.jsonl are always written"},
      {"run_name", "run_dir names the run"},
      {"plot_loss", "`megatrain report RUN` draws the curves"},
      {"overwrite_output_dir", "an earlier run is moved aside, never overwritten"},
      {"overwrite_cache", "the cache follows the content of the files"},
      {"preprocessing_num_workers", data},
      {"preprocessing_batch_size", data},
      {"dataloader_num_workers", data},
      {"dataloader_pin_memory", data},
      {"tokenized_path", data},
      {"ddp_timeout", one},
      {"ddp_find_unused_parameters", one},
      {"local_rank", one},
      {"per_device_eval_batch_size", "evaluation runs in the training's micro-batches"},
      {"eval_strategy", "eval.every says when"},
      {"evaluation_strategy", "eval.every says when"},
      {"save_strategy", "checkpoint.every says when"},
      {"save_safetensors", always},
      {"save_only_model", "checkpoints hold the whole state, RUN/model the model"},
      {"do_train", always},
      {"do_eval", "evaluation runs where data.eval or data.eval_split is given"},
      {"trust_remote_code", "no code of a model is ever run"},
      {"remove_unused_columns", always},
      {"group_by_length", "packing fills the sequences"},
      {"include_num_input_tokens_seen", always},
      {"metric_for_best_model", "the best model is the one with the lowest evaluation loss"},
      {"greater_is_better", "the best model is the one with the lowest evaluation loss"},
  };
  return kNeedless;
}

// Understood by translate() itself.
constexpr const char* kOwnRules[] = {"per_device_train_batch_size",
                                     "gradient_accumulation_steps",
                                     "max_steps",
                                     "lr_scheduler_type",
                                     "mask_history",
                                     "train_on_prompt",
                                     "stage",
                                     "finetuning_type",
                                     "resume_from_checkpoint",
                                     "optim_type"};

bool is_true(const std::string& text) { return text == "true" || text == "True" || text == "yes" || text == "on"; }

int64_t whole(const std::string& name, const Foreign& value) {
  int64_t number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, number);
  if (error != std::errc() || stop != end || number < -1 || number > 1'000'000'000)
    fail_config(fmt::format("{}: {} is '{}', expected a whole number", value.where, name, value.text));
  return number;
}

void translate_batch(const std::map<std::string, Foreign>& given, std::vector<Translation>& out) {
  const auto size = given.find("per_device_train_batch_size"), turns = given.find("gradient_accumulation_steps");
  if (size == given.end() && turns == given.end()) return;
  const int64_t micro = size == given.end() ? 1 : whole(size->first, size->second);
  const int64_t count = turns == given.end() ? 1 : whole(turns->first, turns->second);
  if (size != given.end()) out.push_back({size->first, "micro_batch", std::to_string(micro), ""});
  std::vector<std::string> names;
  for (const auto& one : {size, turns})
    if (one != given.end()) names.push_back(one->first);
  out.push_back({fmt::format("{}", fmt::join(names, " x ")), "batch", std::to_string(micro * count), ""});
}

void translate_schedule(const Foreign& value, std::vector<Translation>& out) {
  static const std::map<std::string, std::string> kSchedules = {
      {"constant", "constant"}, {"constant_with_warmup", "constant"}, {"linear", "linear"},
      {"cosine", "cosine"},     {"cosine_with_min_lr", "cosine"},     {"warmup_stable_decay", "wsd"}};
  const auto found = kSchedules.find(value.text);
  if (found == kSchedules.end())
    fail_config(
        fmt::format("{}: lr_scheduler_type is '{}', expected constant, constant_with_warmup, linear, cosine, "
                    "cosine_with_min_lr or warmup_stable_decay",
                    value.where, value.text));
  out.push_back({"lr_scheduler_type", "optim.schedule", found->second, ""});
}

void refuse_unless(const std::map<std::string, Foreign>& given, const char* name,
                   const std::vector<std::string>& accepted, const char* otherwise, std::vector<Translation>& out) {
  const auto found = given.find(name);
  if (found == given.end()) return;
  if (std::find(accepted.begin(), accepted.end(), found->second.text) == accepted.end())
    fail_config(fmt::format("{}: {} is '{}', expected {}; {}", found->second.where, name, found->second.text,
                            fmt::join(accepted, " or "), otherwise));
  out.push_back({name, "", "", fmt::format("{} is what megatrain does", found->second.text)});
}

}  // namespace

bool is_foreign_key(const std::string& name) {
  return renamed().count(name) || needless().count(name) ||
         std::find(std::begin(kOwnRules), std::end(kOwnRules), name) != std::end(kOwnRules);
}

std::vector<Translation> translate(const std::map<std::string, Foreign>& given) {
  std::vector<Translation> out;
  refuse_unless(given, "stage", {"sft", "pt"}, "megatrain trains on text and on conversations, without preferences",
                out);
  refuse_unless(given, "finetuning_type", {"full"},
                "megatrain trains the weights themselves, no adapters: it needs no LoRA to fit; freeze and train_only "
                "choose tensors by name",
                out);
  refuse_unless(given, "optim_type", {"adamw_torch", "adamw_torch_fused", "adamw", "adamw_hf"},
                "the optimizer is AdamW in fp32; drop this key, and give optim.lr and the like in the section optim",
                out);
  translate_batch(given, out);
  for (const auto& [name, value] : given) {
    if (const auto found = renamed().find(name); found != renamed().end()) {
      if (name == "warmup_steps" && given.count("warmup_ratio") && value.text == "0") continue;
      if (name == "warmup_ratio" && given.count("warmup_steps") && given.at("warmup_steps").text != "0") continue;
      if (name == "packing" && given.count("neat_packing")) {  // which asks for it too
        if (is_true(given.at("neat_packing").text)) continue;
      } else if (name == "neat_packing" && given.count("packing") && !is_true(value.text)) {
        continue;
      }
      out.push_back({name, found->second, value.text, ""});
    } else if (const auto idle = needless().find(name); idle != needless().end()) {
      out.push_back({name, "", "", idle->second});
    } else if (name == "max_steps") {
      if (whole(name, value) > 0)
        out.push_back({name, "steps", value.text, ""});
      else
        out.push_back({name, "", "", "epochs decide"});
    } else if (name == "lr_scheduler_type") {
      translate_schedule(value, out);
    } else if (name == "mask_history" || name == "train_on_prompt") {
      if (is_true(value.text))
        out.push_back({name, "data.train_on", name == "mask_history" ? "last" : "all", ""});
      else
        out.push_back({name, "", "", "every turn of the assistant is trained"});
    } else if (name == "resume_from_checkpoint") {
      const bool off = value.text == "null" || value.text == "false" || value.text.empty();
      out.push_back({name, "resume", off ? "false" : "true", ""});
    }
  }
  // as the Hugging Face trainer: max_steps overrides epochs
  const auto steps = std::find_if(out.begin(), out.end(), [](const Translation& t) { return t.key == "steps"; });
  if (steps != out.end()) {
    for (Translation& t : out)
      if (t.key == "epochs") t = {t.from, "", "", "max_steps is given, which decides"};
  }
  return out;
}

}  // namespace megatrain
