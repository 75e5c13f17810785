#include "megatrain/foreign/hf_trainer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/foreign/sentences.h"

namespace megatrain {
namespace {

constexpr const char* kLowest = "the best model is the one with the lowest evaluation loss";
constexpr const char* kEvaluation = "evaluation measures the loss, in the training's micro-batches";

constexpr ForeignIdle kTrainerIdle[] = {
    {"deepspeed", nullptr, kPlan},
    {"gradient_checkpointing", nullptr, kPlan},
    {"gradient_checkpointing_kwargs", nullptr, kPlan},
    {"low_cpu_mem_usage", nullptr, kPlan},
    {"torch_empty_cache_steps", nullptr, kPlan},
    {"auto_find_batch_size", "false", "the batch is what the file says"},
    {"use_liger_kernel", nullptr, kFused},
    {"liger_kernel_config", nullptr, kFused},
    {"torch_compile", nullptr, kFused},
    {"torch_compile_backend", nullptr, kFused},
    {"torch_compile_mode", nullptr, kFused},
    {"tf32", nullptr, "matmuls never use tf32"},
    {"bf16_full_eval", nullptr, "evaluation has the training's precision"},
    {"fp16_full_eval", nullptr, "evaluation has the training's precision"},
    {"logging_strategy", nullptr, kLogged},
    {"logging_first_step", nullptr, kAlways},
    {"logging_dir", nullptr, "TensorBoard files go to RUN/tensorboard"},
    {"logging_nan_inf_filter", nullptr, "a loss that is not finite ends the run"},
    {"log_level", nullptr, kLogged},
    {"log_level_replica", nullptr, kOneProcess},
    {"log_on_each_node", nullptr, kOneProcess},
    {"disable_tqdm", nullptr, kLogged},
    {"skip_memory_metrics", nullptr, kLogged},
    {"include_num_input_tokens_seen", nullptr, kAlways},
    {"include_tokens_per_second", nullptr, kAlways},
    {"include_effective_tokens_per_second", nullptr, kAlways},
    {"overwrite_output_dir", nullptr, "an earlier run is moved aside, never overwritten; --resume resumes it"},
    {"dataloader_num_workers", nullptr, kTokenising},
    {"dataloader_pin_memory", nullptr, kTokenising},
    {"dataloader_persistent_workers", nullptr, kTokenising},
    {"dataloader_prefetch_factor", nullptr, kTokenising},
    {"dataloader_drop_last", "false", "every sample of an epoch is used"},
    {"group_by_length", nullptr, "samples are shuffled, whatever their length"},
    {"length_column_name", nullptr, "samples are shuffled, whatever their length"},
    {"data_seed", nullptr, "the order follows seed, and is not the order there"},
    {"remove_unused_columns", nullptr, kAlways},
    {"ddp_timeout", nullptr, kOneProcess},
    {"ddp_backend", nullptr, kOneProcess},
    {"ddp_bucket_cap_mb", nullptr, kOneProcess},
    {"ddp_find_unused_parameters", nullptr, kOneProcess},
    {"local_rank", nullptr, kOneProcess},
    {"fsdp", nullptr, kOneProcess},
    {"fsdp_config", nullptr, kOneProcess},
    {"fsdp_transformer_layer_cls_to_wrap", nullptr, kOneProcess},
    {"save_on_each_node", nullptr, kOneProcess},
    {"average_tokens_across_devices", nullptr, "the loss is the mean over the step's trained tokens"},
    {"per_device_eval_batch_size", nullptr, kMicroBatches},
    {"eval_accumulation_steps", nullptr, kEvaluation},
    {"eval_on_start", "false", "`megatrain eval` measures a model that is not trained yet"},
    {"eval_delay", "0 0.0", "evaluation starts after eval.every steps"},
    {"prediction_loss_only", nullptr, kEvaluation},
    {"save_safetensors", nullptr, kAlways},
    {"save_only_model", nullptr, "checkpoints hold the whole state, RUN/model the model"},
    {"do_train", "true", "`megatrain train` trains; `megatrain eval` measures"},
    {"do_eval", nullptr, "evaluation runs where there is data for it"},
    {"trust_remote_code", nullptr, "no code of a model is ever run"},
    {"metric_for_best_model", "loss eval_loss null", kLowest},
    {"greater_is_better", "false null", kLowest},
    {"full_determinism", nullptr, kAlways},
    {"ignore_data_skip", "false", "a resumed run continues at its next sample"},
    {"push_to_hub", "false", kNoNetwork},
    {"hub_*", nullptr, kNoNetwork},
    {"optim_args", "null", "the optimizer is AdamW"},
    {"optim_target_modules", "null", "the optimizer is AdamW"},
};

struct Optimizer {
  const char* name;
  bool small;  // moments of 8 or 4 bits
};
constexpr Optimizer kOptimizers[] = {
    {"adamw_torch", false},       {"adamw_torch_fused", false}, {"adamw", false},
    {"adamw_hf", false},          {"adamw_apex_fused", false},  {"paged_adamw", false},
    {"paged_adamw_32bit", false}, {"adamw_8bit", true},         {"adamw_bnb_8bit", true},
    {"adamw_torch_8bit", true},   {"paged_adamw_8bit", true},   {"ao_adamw_8bit", true},
    {"adamw_torch_4bit", true},   {"ao_adamw_4bit", true},
};

const std::map<std::string, std::string>& schedules() {
  static const std::map<std::string, std::string> kSchedules = {{"constant", "constant"},
                                                                {"constant_with_warmup", "constant"},
                                                                {"linear", "linear"},
                                                                {"cosine", "cosine"},
                                                                {"cosine_with_min_lr", "cosine"}};
  return kSchedules;
}

// Reads lr_scheduler_kwargs of cosine_with_min_lr: {min_lr: …} or {min_lr_rate: …}.
void least_rate(ForeignReader& reader, const std::string& schedule, const char* key, const char* rate) {
  const Foreign* given = reader.find("lr_scheduler_kwargs");
  const bool entries = given && !given->entries.empty();
  if (given && !entries && given->text != "{}")
    fail_config(fmt::format("{}: lr_scheduler_kwargs is '{}', expected a mapping", given->where, given->text));
  if (schedule == "cosine_with_min_lr" && !entries && !reader.own("optim.min_lr"))
    fail_config(
        fmt::format("{}: cosine_with_min_lr needs lr_scheduler_kwargs: {{min_lr: …}}", reader.given().at(key).where));
  if (!entries) return reader.idle("lr_scheduler_kwargs", "nothing is in it");
  const auto& [name, text] = *given->entries.begin();
  const Foreign value{.text = text, .where = given->where};
  for (const auto& [each, ignored] : given->entries)
    if (each != "min_lr" && each != "min_lr_rate")
      fail_config(
          fmt::format("{}: lr_scheduler_kwargs has {}, expected min_lr or min_lr_rate, of {}: cosine_with_min_lr",
                      given->where, each, key));
  if (given->entries.size() > 1)
    fail_config(fmt::format("{}: lr_scheduler_kwargs has min_lr and min_lr_rate; keep one", given->where));
  if (schedule != "cosine_with_min_lr")
    fail_config(
        fmt::format("{0}: lr_scheduler_kwargs has {1}, which is of {2}: cosine_with_min_lr, and {2} is {3}; give {2}: "
                    "cosine_with_min_lr, or leave {1} out",
                    given->where, name, key, schedule.empty() ? "not given" : schedule));
  double least = foreign_double(name, value);
  if (name == "min_lr_rate") {
    if (reader.own("optim.lr"))
      fail_config(fmt::format("{}: min_lr_rate is a part of learning_rate, but optim.lr is given; give optim.min_lr",
                              given->where));
    least *= reader.number("learning_rate", std::stod(rate));
  }
  reader.add("lr_scheduler_kwargs", "", "optim.min_lr", fmt::format("{}", least)).theirs =
      fmt::format("{}: {}", name, text);
}

}  // namespace

std::span<const ForeignIdle> hf_idle_keys() { return kTrainerIdle; }

void hf_optimizer(ForeignReader& reader, const char* key) {
  const Foreign* value = reader.find(key);
  if (!value) return reader.idle(key, "AdamW in fp32");
  const auto* const found = std::find_if(std::begin(kOptimizers), std::end(kOptimizers),
                                         [&](const Optimizer& each) { return value->text == each.name; });
  if (found == std::end(kOptimizers))
    fail_config(
        fmt::format("{}: {} is '{}', expected adamw_torch or adamw_torch_fused, or with moments of 8 bits "
                    "adamw_bnb_8bit or adamw_torch_8bit; the optimizer is AdamW: drop this key, and give optim.lr and "
                    "the like in the section optim",
                    value->where, foreign_key_name(key), value->text));
  if (found->small)
    reader.add(key, "", "state.moments", "int8",
               fmt::format("moments of 8 bits, in megatrain's own blocks{}",
                           value->text.ends_with("4bit") ? "; there of 4 bits" : ""));
  else
    reader.idle(key, "AdamW in fp32");
}

std::string hf_schedule_name(const ForeignReader& reader, const char* key, const char* standard) {
  return reader.text(key, reader.theirs() ? standard : "");
}

void hf_schedule(ForeignReader& reader, const char* key, const char* standard, const char* rate) {
  const std::string name = hf_schedule_name(reader, key, standard);
  const auto found = schedules().find(name);
  if (!name.empty() && found == schedules().end())
    fail_config(
        fmt::format("{}: {} is '{}', expected constant, constant_with_warmup, linear, cosine or "
                    "cosine_with_min_lr (optim.schedule: wsd is megatrain's warmup, stable, decay)",
                    reader.given().at(key).where, key, name));
  if (!name.empty()) reader.add(key, standard, "optim.schedule", found->second);
  least_rate(reader, name, key, rate);
}

std::string hf_strategy(const ForeignReader& reader, const char* name, const char* standard) {
  const Foreign* value = reader.find(name);
  if (!value) return standard;
  if (value->text == "steps" || value->text == "epoch") return value->text;
  if (!is_on(*value)) return "no";
  fail_config(fmt::format("{}: {} is '{}', expected steps, epoch or no", value->where, name, value->text));
}

std::string hf_every(const char* name, const Foreign& value) {
  const double number = foreign_double(name, value);
  if (number > 0 && number < 1) return foreign_number(name, value);
  return foreign_whole(name, value);
}

bool hf_steps(ForeignReader& reader, const char* epochs) {
  const Foreign* value = reader.find("max_steps");
  const std::string steps = value ? foreign_whole("max_steps", *value) : "0";
  if (std::stoll(steps) <= 0) {
    reader.idle("max_steps", "epochs decide");
    return false;
  }
  reader.add("max_steps", "", "steps", steps);
  reader.idle(epochs, "max_steps decides");
  return true;
}

Translation* hf_epochs(ForeignReader& reader, const char* epochs, const char* standard) {
  const bool own = reader.own("steps") || reader.own("epochs") || reader.own("tokens");
  if (reader.is_given(epochs))
    return &reader.add(epochs, "", "epochs", foreign_number(epochs, reader.given().at(epochs)));
  return reader.theirs() && !own ? &reader.add(epochs, standard, "epochs", standard) : nullptr;
}

double hf_warmup_ratio(const ForeignReader& reader, double standard) {
  const double part = reader.number("warmup_ratio", standard);
  if (part >= 0 && part < 1) return part;
  const Foreign& given = *reader.find("warmup_ratio");
  fail_config(
      fmt::format("{}: warmup_ratio is {}, expected a part of the run from 0 to below 1", given.where, given.text));
}

void hf_held_out(const ForeignReader& reader, const char* key) {
  const Foreign* value = reader.find(key);
  if (!value || foreign_double(key, *value) != 1) return;
  fail_config(
      fmt::format("{}: {} is {}, which is all samples there, so that none is left to train on; expected a part below 1 "
                  "or a number of samples above 1 (data.eval_split: 1 takes one)",
                  value->where, key, value->text));
}

void hf_seed(ForeignReader& reader) {
  if (!reader.own("seed")) reader.add("seed", "42", "seed", "42", "the order of the samples is another");
}

void hf_resume(ForeignReader& reader) {
  const Foreign* value = reader.find("resume_from_checkpoint");
  if (!value) return reader.idle("resume_from_checkpoint", "give --resume to continue");
  if (value->text.find('/') != std::string::npos || value->text.find("checkpoint") != std::string::npos)
    fail_config(
        fmt::format("{}: resume_from_checkpoint is '{}', expected true or false: a run resumes from the newest "
                    "checkpoint of its output_dir; to resume from an older one, move the newer ones away",
                    value->where, value->text));
  const bool on = foreign_flag("resume_from_checkpoint", *value);
  reader.add("resume_from_checkpoint", "", "resume", on ? "true" : "false",
             on ? "from the newest checkpoint of run_dir" : "");
}

void hf_replicas(ForeignReader& reader, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const int64_t gpus = reader.find(name) ? reader.count(name, 1) : 1;
    if (gpus == 1)
      reader.idle(name, kOneProcess);
    else
      reader.differs(name, kOneProcess,
                     fmt::format("{} is {}: there as many GPUs each take the samples of a step, here a step has those "
                                 "of one GPU; for a step as there, multiply gradient_accumulation_steps by {}",
                                 name, gpus, gpus));
  }
}

void hf_fp8(ForeignReader& reader) {
  if (reader.flag("fp8"))
    reader.differs("fp8", kNotFp8, "fp8 is not supported: matmuls compute in the format of precision");
  else
    reader.idle("fp8", kNotFp8);
}

}  // namespace megatrain
