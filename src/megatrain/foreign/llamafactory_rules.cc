#include "megatrain/foreign/llamafactory_rules.h"

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/foreign/adapters.h"
#include "megatrain/foreign/deepspeed.h"
#include "megatrain/foreign/hf_trainer.h"
#include "megatrain/foreign/llamafactory_templates.h"
#include "megatrain/foreign/sentences.h"
#include "megatrain/foreign/trackers.h"

namespace megatrain {
namespace {

void dataset_directory(ForeignReader& r) {
  if (!r.is_given("dataset_dir") && !r.theirs()) return;
  const Foreign* directory = r.find("dataset_dir");
  if (!directory && r.is_given("dataset_dir"))
    fail_config(fmt::format("{}: dataset_dir is null, expected a value; leave the line out for the default",
                            r.given().at("dataset_dir").where));
  if (directory && directory->text == "ONLINE")
    fail_config(
        fmt::format("{}: dataset_dir is '{}', but nothing is downloaded; expected a directory with a "
                    "dataset_info.json",
                    directory->where, directory->text));
  const std::string remote = "REMOTE:", folder = directory ? directory->text : "data";
  if (folder.starts_with(remote)) {
    const std::string name = folder.substr(remote.size());
    r.add("dataset_dir", "", "data.info", name, "a directory here: nothing is downloaded").warning = fmt::format(
        "nothing is downloaded: dataset_dir is read from the directory {0}; get it with 'hf download {0} "
        "--repo-type dataset --local-dir {0}'",
        name);
  } else {
    r.add("dataset_dir", "data", "data.info", folder);
  }
}

void data(ForeignReader& r) {
  r.attempt([&] { hf_held_out(r, "val_size"); });
  const Foreign* most = r.find("max_samples");
  if (most && foreign_whole("max_samples", *most) == "0")
    fail_config(fmt::format("{}: max_samples is 0, which leaves no sample; leave the line out for all", most->where));
  // If tokenized_path exists, LLaMA-Factory trains on that alone and does not read `dataset`.
  const Foreign* tokenized = r.find("tokenized_path");
  std::error_code none;
  if (tokenized && std::filesystem::exists(tokenized->text, none))
    fail_config(
        fmt::format("{}: tokenized_path {} exists, and LLaMA-Factory would train only on it; megatrain reads "
                    "`dataset` and keeps its own cache: drop this key",
                    tokenized->where, tokenized->text));
}

bool is_pretraining(const ForeignReader& r) { return r.text("stage", "") == "pt"; }

void method(ForeignReader& r) {
  r.attempt([&] {
    if (!r.is_given("stage") && !r.theirs()) return;
    const std::string stage = r.text("stage", "sft");
    if (stage != "sft" && stage != "pt")
      fail_config(fmt::format("{}: stage is '{}', expected sft or pt; megatrain trains on conversations and on text",
                              r.find("stage")->where, stage));
    Translation& t = r.add("stage", "sft", "", "",
                           fmt::format("all samples have to be {}", stage == "pt" ? "texts" : "conversations"));
    t.theirs = "stage: " + stage;  // also for null, which means the default
    t.stage = stage;
  });
  r.attempt([&] {
    r.expect("finetuning_type", {"lora", "full"}, "megatrain trains adapters or the weights themselves",
             r.own("adapter.rank")                         ? "adapter.rank decides"
             : r.text("finetuning_type", "lora") == "lora" ? "the weights are frozen, and adapters are trained"
                                                           : "all weights are trained");
  });
  if (r.theirs() && !r.is_given("finetuning_type"))
    r.add("finetuning_type", "lora", "", "", "the weights are frozen, and adapters are trained");
}

void llamafactory_packing(ForeignReader& r) {
  const bool asked = r.is_given("packing") || r.is_given("neat_packing");
  if (!asked && !r.theirs()) return;
  const bool neat = r.flag("neat_packing");
  const bool on = neat || (r.find("packing") ? r.flag("packing") : is_pretraining(r));
  const char* note = "";
  if (on && is_pretraining(r))
    note = "documents are kept apart and fill sequences; there they are one stream, cut into pieces";
  else if (on && !neat)
    note = "each sample attends only to itself, as with neat_packing";
  else if (on)
    note = "the samples of a sequence are chosen from all, there from a thousand";
  const char* from = !r.is_given("packing") && r.is_given("neat_packing") ? "neat_packing" : "packing";
  const bool cut = !on && is_pretraining(r);  // LLaMA-Factory truncates it at cutoff_len
  if (cut)
    note =
        "DIFFERS FROM LLaMA-Factory: all of a text above cutoff_len is trained, in pieces; there its first cutoff_len "
        "tokens";
  Translation& t = r.add(from, is_pretraining(r) ? "true" : "false", "data.packing", on ? "true" : "false", note);
  if (cut)
    t.warning =
        "packing is false in stage pt: all of a text with more than cutoff_len tokens is trained, a sample for each "
        "cutoff_len of them; LLaMA-Factory trains only the first cutoff_len, so it may have fewer steps";
  if (r.is_given("packing")) r.idle("neat_packing", "packing keeps samples apart in any case");
}

void llamafactory_masks(ForeignReader& r) {
  const bool last = r.flag("mask_history"), all = r.flag("train_on_prompt");
  if (last && all)
    fail_config(fmt::format("{}: mask_history and train_on_prompt are both true; keep one",
                            r.given().at("train_on_prompt").where));
  if (!last && !all && !r.theirs()) {
    r.idle("mask_history", "every turn of the assistant is trained");
    r.idle("train_on_prompt", "only what the assistant says is trained");
    return;
  }
  r.add(all ? "train_on_prompt" : "mask_history", "false", "data.train_on", all ? "all" : last ? "last" : "assistant");
  if (all)
    r.idle("mask_history", "train_on_prompt is true");
  else
    r.idle("train_on_prompt", "only what the assistant says is trained");
}

void llamafactory_batch(ForeignReader& r) {
  const char *const size = "per_device_train_batch_size", *const turns = "gradient_accumulation_steps";
  const bool asked = r.is_given(size) || r.is_given(turns);
  if (!asked && (!r.theirs() || r.own("batch"))) return;
  const int64_t micro = r.count(size, r.theirs() ? 8 : 1), times = r.count(turns, 1);
  if (r.is_given(size) || (r.theirs() && !r.own("micro_batch"))) r.add(size, "8", "micro_batch", std::to_string(micro));
  Translation& batch = r.add(r.is_given(size) ? size : turns, "1", "batch", std::to_string(micro * times));
  batch.theirs = fmt::format("{} x {}", r.shown(size, r.theirs() ? "8" : "1"), r.shown(turns, "1"));
  batch.given = asked;
}

void llamafactory_length(ForeignReader& r) {
  if (!hf_steps(r, "num_train_epochs")) hf_epochs(r, "num_train_epochs", "3.0");
}

void llamafactory_warmup(ForeignReader& r) {
  const Foreign *steps = r.find("warmup_steps"), *part = r.find("warmup_ratio");
  if (!steps && !part && !r.theirs()) return;
  const double in_steps = r.number("warmup_steps", 0), in_parts = hf_warmup_ratio(r, 0);
  const bool by_steps = in_steps > 0 || !part;
  const char* const name = by_steps ? "warmup_steps" : "warmup_ratio";
  // transformers' "constant" schedule has no warmup
  if (hf_schedule_name(r, "lr_scheduler_type", "linear") == "constant")
    r.add(name, "0", "optim.warmup", "0", "constant has no warmup; constant_with_warmup has");
  else
    r.add(name, "0", "optim.warmup", fmt::format("{}", by_steps ? in_steps : in_parts));
  if (steps && part) r.idle(by_steps ? "warmup_ratio" : "warmup_steps", fmt::format("{} decides", name));
}

void llamafactory_precision(ForeignReader& r) {
  const bool asked = r.is_given("bf16") || r.is_given("pure_bf16") || r.is_given("fp16");
  if (asked || r.theirs()) {
    const bool half = r.flag("fp16"), mixed = r.flag("bf16") || r.flag("pure_bf16");
    if (r.flag("bf16") && half)
      fail_config(fmt::format("{}: bf16 and fp16 are both true, which the trainer refuses; keep bf16",
                              r.given().at("fp16").where));
    const char* from = r.flag("pure_bf16") ? "pure_bf16" : half && !mixed ? "fp16" : "bf16";
    if (!r.is_given(from) && asked) from = r.is_given("pure_bf16") ? "pure_bf16" : "fp16";
    r.add(from, "false", "precision", mixed || half ? "bf16" : "fp32",
          half && !mixed                               ? "bf16 needs no loss scaling"
          : r.theirs() && llamafactory_lora(r.given()) ? kAdapterState
                                                       : "weights and their state stay fp32");
    for (const char* other : {"bf16", "pure_bf16", "fp16"})
      if (std::strcmp(other, from) != 0) r.idle(other, fmt::format("{} decides", from));
  }
  for (const char* name : {"use_cpu", "no_cuda"}) {
    if (r.flag(name))
      r.add(name, "", "device", "cpu");
    else
      r.idle(name, "the GPU is used when there is one");
  }
}

void llamafactory_saves(ForeignReader& r) {
  if (!r.is_given("save_steps") && !r.is_given("save_strategy") && !r.theirs()) return;
  const std::string when = hf_strategy(r, "save_strategy", "steps");
  if (when != "steps") {
    r.add("save_strategy", "", "checkpoint.every", when == "no" ? "0" : when);
    return r.idle("save_steps", fmt::format("save_strategy is {}", when));
  }
  const Foreign* steps = r.find("save_steps");
  if (steps || r.theirs())
    r.add("save_steps", "500", "checkpoint.every", steps ? hf_every("save_steps", *steps) : "500");
  r.idle("save_strategy", "checkpoint.every says when");
}

void llamafactory_evaluations(ForeignReader& r) {
  const char* const name = r.is_given("evaluation_strategy") ? "evaluation_strategy" : "eval_strategy";
  const Foreign *steps = r.find("eval_steps"), *logging = r.find("logging_steps");
  const std::string when = hf_strategy(r, name, r.theirs() ? "no" : "steps");
  const char* why = "every step is logged";
  if (when != "steps") {
    if (r.is_given(name) || r.theirs())
      r.add(name, "no", "eval.every", when == "no" ? "0" : when,
            when == "no" ? "at the end, where there is data for it" : "");
    r.idle("eval_steps", fmt::format("{} is {}", name, when));
  } else {
    if (steps && is_on(*steps)) {
      r.add("eval_steps", "", "eval.every", hf_every("eval_steps", *steps));
    } else if (r.theirs()) {
      why = "it says when to evaluate, as eval_steps is not given; every step is logged";
      r.add(name, "", "eval.every", logging ? hf_every("logging_steps", *logging) : "500",
            "logging_steps, as eval_steps is not given");
    }
    if (steps && is_on(*steps)) r.idle(name, "eval.every says when");
  }
  r.idle("logging_steps", why);
}

// Other engines than PyTorch's, which train the same. What they do otherwise is said.
void engines(ForeignReader& r) {
  if (r.flag("use_kt"))
    r.differs("use_kt", kPlan,
              "use_kt: KTransformers may give adapters to experts, which stay frozen here; weights in int8 or int4 are "
              "read as bf16");
  else
    r.idle("use_kt", "it is switched off");
  constexpr const char* kMegatron[] = {"use_mca", "use_megatron_bridge", "tensor_model_parallel_size",
                                       "pipeline_model_parallel_size", "expert_model_parallel_size"};
  bool warned = false;
  for (const char* name : kMegatron) {
    if (!r.find(name) || !is_on(*r.find(name)) || std::exchange(warned, true))
      r.idle(name, "there is one GPU, and no Megatron");
    else
      r.differs(
          name, "there is one GPU, and no Megatron",
          fmt::format("{} is of a run with Megatron: here the rules of LLaMA-Factory without Megatron apply", name));
  }
}

}  // namespace

void llamafactory_rules(ForeignReader& r) {
  method(r);
  for (void (*each)(ForeignReader&) :
       {dataset_directory, data, llamafactory_packing, llamafactory_masks, llamafactory_batch, llamafactory_length,
        llamafactory_warmup, llamafactory_precision, hf_fp8, llamafactory_adapter, engines, llamafactory_saves,
        llamafactory_evaluations})
    r.attempt([&] { each(r); });
  r.attempt([&] { hf_optimizer(r, "optim_type"); });
  r.attempt([&] { hf_schedule(r, "lr_scheduler_type", "linear", "5e-5"); });
  r.attempt([&] { hf_resume(r); });
  r.attempt([&] { hf_trackers(r); });
  r.attempt([&] { hf_replicas(r, {"ray_num_workers"}); });
  check_deepspeed(r, "per_device_train_batch_size", 8);
  r.attempt([&] { factory_template(r); });
  if (!r.theirs()) return;
  hf_seed(r);
  r.rule("(steps and warmup)", "conventions", "transformers");
  r.attempt([&] {
    r.rule("(samples that are too long)", "data.overlong", "by_turn",
           r.flag("mask_history")      ? "the end of what comes before the last answer is kept"
           : r.flag("train_on_prompt") ? "the first seq_len tokens are kept"
                                       : "");
  });
}

}  // namespace megatrain
