#include "megatrain/config/foreign_keys.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "megatrain/base/edit_distance.h"
#include "megatrain/config/foreign_idle.h"
#include "megatrain/config/foreign_methods.h"

namespace megatrain {
namespace {

constexpr RenamedKey kRenamed[] = {
    {"model_name_or_path", "model.path", ForeignKind::text},
    {"dataset", "data.train", ForeignKind::text, nullptr, "null"},
    {"eval_dataset", "data.eval", ForeignKind::text, nullptr, "null"},
    {"dataset_dir", "data.info", ForeignKind::text, "data"},
    {"cutoff_len", "seq_len", ForeignKind::whole, "2048"},
    {"max_samples", "data.max_samples", ForeignKind::whole, "null", "0"},
    {"val_size", "data.eval_split", ForeignKind::number, "0"},
    {"disable_shuffling", "data.shuffle", ForeignKind::flag, "false"},
    {"learning_rate", "optim.lr", ForeignKind::number, "5e-5"},
    {"weight_decay", "optim.weight_decay", ForeignKind::number, "0"},
    {"adam_beta1", "optim.beta1", ForeignKind::number, "0.9"},
    {"adam_beta2", "optim.beta2", ForeignKind::number, "0.999"},
    {"adam_epsilon", "optim.eps", ForeignKind::number, "1e-8"},
    {"max_grad_norm", "optim.clip", ForeignKind::number, "1.0", "0"},
    {"moe_aux_loss_coef", "moe.aux_loss", ForeignKind::number, nullptr, "auto"},
    {"output_dir", "run_dir", ForeignKind::text},
    {"save_total_limit", "checkpoint.keep", ForeignKind::whole, "null", kAllCheckpoints},
    {"early_stopping_steps", "eval.patience", ForeignKind::whole, nullptr, "0"},
    {"load_best_model_at_end", "eval.keep_best", ForeignKind::flag, nullptr, nullptr,
     "the best goes to RUN/best, the last to RUN/model"},
    {"skip-bad", "data.skip_bad", ForeignKind::whole},
};

// Understood by a rule of their own, in config_aliases.cc.
constexpr const char* kOwnRules[] = {"stage",
                                     "finetuning_type",
                                     "optim_type",
                                     "per_device_train_batch_size",
                                     "gradient_accumulation_steps",
                                     "num_train_epochs",
                                     "max_steps",
                                     "lr_scheduler_type",
                                     "lr_scheduler_kwargs",
                                     "warmup_ratio",
                                     "warmup_steps",
                                     "packing",
                                     "neat_packing",
                                     "mask_history",
                                     "train_on_prompt",
                                     "bf16",
                                     "pure_bf16",
                                     "fp16",
                                     "use_cpu",
                                     "no_cuda",
                                     "save_strategy",
                                     "save_steps",
                                     "eval_strategy",
                                     "evaluation_strategy",
                                     "eval_steps",
                                     "logging_steps",
                                     "resume_from_checkpoint"};

}  // namespace

std::span<const RenamedKey> renamed_keys() { return kRenamed; }

bool is_foreign_key(const std::string& name) {
  return std::any_of(std::begin(kRenamed), std::end(kRenamed), [&](const RenamedKey& r) { return name == r.name; }) ||
         std::find(std::begin(kOwnRules), std::end(kOwnRules), name) != std::end(kOwnRules) || is_idle_key(name) ||
         is_method_key(name);
}

bool takes_foreign_mapping(const std::string& name) {
  const bool renamed = std::any_of(std::begin(kRenamed), std::end(kRenamed), [&](auto& r) { return name == r.name; });
  const bool ruled = std::find(std::begin(kOwnRules), std::end(kOwnRules), name) != std::end(kOwnRules);
  return name == "lr_scheduler_kwargs" || (!renamed && !ruled);
}

bool takes_foreign_list(const std::string& name) {
  return name == "dataset" || name == "eval_dataset" || takes_foreign_mapping(name);
}

std::string nearest_foreign_key(const std::string& unknown) {
  std::vector<std::string> names = idle_keys();
  for (const RenamedKey& each : kRenamed) names.push_back(each.name);
  names.insert(names.end(), std::begin(kOwnRules), std::end(kOwnRules));
  std::string nearest;
  int64_t least = 1 + most_typing_errors(unknown);
  for (const std::string& name : names) {
    const int64_t distance = edit_distance(unknown, name);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace megatrain
