// LLaMA-Factory's files (its arguments and transformers' TrainingArguments), and single keys of theirs in ours.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/config/foreign/hf_trainer.h"
#include "megatrain/config/foreign/methods.h"
#include "megatrain/config/foreign/trainers.h"

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

constexpr const char* kPlan = "the plan decides what is recomputed and where state lives";
constexpr const char* kAlways = "megatrain does this always";
constexpr const char* kData = "tokenising is parallel and cached by itself";
constexpr const char* kOneProcess = "there is one process and one GPU";
constexpr const char* kLog = "every step is logged, to metrics.jsonl and TensorBoard files too";
constexpr const char* kGeneration = "it is of answers, not of training";
constexpr const char* kModel = "the model's own config.json and tokenizer decide";
constexpr const char* kTemplate = "the model's own chat template decides; data.template names another";
constexpr const char* kNoNetwork = "nothing is uploaded or downloaded";
constexpr const char* kFused = "the kernels are always fused";

constexpr ForeignIdle kIdle[] = {
    {"template", nullptr, "the model's own chat template is used; data.template names another"},
    {"disable_gradient_checkpointing", nullptr, kPlan},
    {"use_reentrant_gc", nullptr, kPlan},
    {"use_unsloth_gc", nullptr, kPlan},
    {"offload_folder", nullptr, kPlan},
    {"flash_attn", nullptr, "attention is always the fused kernel"},
    {"enable_liger_kernel", nullptr, kFused},
    {"use_v1_kernels", nullptr, kFused},
    {"upcast_layernorm", nullptr, "norms are computed in fp32"},
    {"upcast_lmhead_output", nullptr, "the loss is computed in fp32"},
    {"use_swanlab", nullptr, kLog},
    {"plot_loss", nullptr, "`megatrain report RUN` draws the curves"},
    {"print_param_status", nullptr, "`megatrain inspect` lists the tensors"},
    {"overwrite_cache", nullptr, "the cache follows the content of the files"},
    {"preprocessing_num_workers", nullptr, kData},
    {"preprocessing_batch_size", nullptr, kData},
    {"data_shared_file_system", nullptr, kData},
    {"tokenized_path", nullptr, kData},
    {"streaming", nullptr, "datasets are tokenised in bounded memory, and shuffled whole"},
    {"buffer_size", nullptr, "datasets are tokenised in bounded memory, and shuffled whole"},
    {"mix_strategy", "concat", "the weights of data.train mix datasets"},
    {"interleave_probs", "null", "the weights of data.train mix datasets"},
    {"ignore_pad_token_for_loss", "true", "padding is never trained"},
    {"default_system", "null", kTemplate},
    {"tool_format", "null", kTemplate},
    {"enable_thinking", "null true", kTemplate},
    {"preserve_thinking", "false", kTemplate},
    {"ray_num_workers", "1", "there is one GPU; raise gradient_accumulation_steps by that factor instead"},
    {"ray_init_kwargs", nullptr, kOneProcess},
    {"eval_on_each_dataset", "false", "the loss is one, over all evaluation data"},
    {"compute_accuracy", nullptr, "evaluation measures the loss; `megatrain eval` also counts right answers"},
    {"use_fast_tokenizer", nullptr, kAlways},
    {"use_cache", nullptr, kGeneration},
    {"use_kv_cache", nullptr, kGeneration},
    {"hf_hub_token", nullptr, kNoNetwork},
    {"ms_hub_token", nullptr, kNoNetwork},
    {"om_hub_token", nullptr, kNoNetwork},
    {"cache_dir", "null", "the cache of Hugging Face's own tools is read ($HF_HUB_CACHE)"},
    {"model_revision", "main", "give model_name_or_path the directory of that revision"},
    {"resize_vocab", "false", kModel},
    {"split_special_tokens", "false", kModel},
    {"add_tokens", "null", kModel},
    {"add_special_tokens", "null", kModel},
    {"new_special_tokens_config", "null", kModel},
    {"init_special_tokens", nullptr, kModel},
    {"rope_scaling", "null", kModel},
    {"train_from_scratch", "false", "model.config: a config.json starts from random weights"},
    {"max_new_tokens", nullptr, kGeneration},
    {"max_length", nullptr, kGeneration},
    {"temperature", nullptr, kGeneration},
    {"top_p", nullptr, kGeneration},
    {"top_k", nullptr, kGeneration},
    {"do_sample", nullptr, kGeneration},
    {"num_beams", nullptr, kGeneration},
    {"eval_num_beams", nullptr, kGeneration},
    {"repetition_penalty", nullptr, kGeneration},
};

constexpr const char* kFull =
    "all weights are trained, and fit on one GPU without adapters: give finetuning_type: full, and freeze or "
    "train_only (patterns over tensor names) to train a part of them";
constexpr const char* kStages =
    "stage sft trains on conversations and pt on text; to go on with the better answers alone, write them as an sft "
    "set";
constexpr const char* kWeights = "take the model's bf16 or fp32 weights and finetuning_type: full";
constexpr const char* kAnswers = "`megatrain generate` and `megatrain eval` ask a trained model";
constexpr const char* kSees = "a model that sees (VLM)";
constexpr const char* kHears = "a model that hears";

// Of a file without datasets, which trains nothing.
constexpr MethodSwitch kOtherPurposes[] = {
    {"export_dir", "an export", "`megatrain export RUN --out DIR` writes a model that was trained here"},
    {"infer_backend", "answers", kAnswers},
};

// Theirs is lora where finetuning_type is not given, so any parameter of an adapter asks for it then.
constexpr MethodParameter kAdapterParameters[] = {{"lora_*", "LoRA"},
                                                  {"loraplus_*", "LoRA"},
                                                  {"pissa_*", "LoRA"},
                                                  {"use_rslora", "LoRA"},
                                                  {"use_dora", "LoRA"},
                                                  {"additional_target", "LoRA"},
                                                  {"create_new_adapter", "LoRA"},
                                                  {"adapter_folder", "LoRA"},
                                                  {"oft_*", "OFT"},
                                                  {"module_dropout", "OFT"}};

void refuse_more(const ForeignTrainer&, const ForeignKeys& given) {
  if (!given.count("finetuning_type")) {
    for (const auto& [name, value] : given)
      for (const MethodParameter& each : kAdapterParameters)
        if (matches(each.name, name) && !value.null)
          refuse_method(name, value, fmt::format("adapters ({})", each.of), kFull);
  }
  if (given.count("dataset")) return;
  for (const MethodSwitch& each : kOtherPurposes)
    if (const auto found = given.find(each.name); found != given.end() && is_on(found->second))
      refuse_method(each.name, found->second, each.method, each.instead);
}

void data(ForeignReader& r) {
  const Foreign* directory = r.find("dataset_dir");
  if (directory && (directory->text == "ONLINE" || directory->text.starts_with("REMOTE:")))
    fail_config(
        fmt::format("{}: dataset_dir is '{}', but nothing is downloaded; expected a directory with a "
                    "dataset_info.json",
                    directory->where, directory->text));
  const Foreign* most = r.find("max_samples");
  if (most && foreign_whole("max_samples", *most) == "0")
    fail_config(fmt::format("{}: max_samples is 0, which leaves no sample; leave the line out for all", most->where));
  // There, what stands at tokenized_path is the dataset, and `dataset` is not read.
  const Foreign* tokenized = r.find("tokenized_path");
  std::error_code none;
  if (tokenized && std::filesystem::exists(tokenized->text, none))
    fail_config(
        fmt::format("{}: tokenized_path {} is there, and LLaMA-Factory would train on it alone; megatrain reads "
                    "`dataset` and keeps its own cache: drop this key",
                    tokenized->where, tokenized->text));
}

void method(ForeignReader& r) {
  r.attempt([&] {
    r.expect("stage", {"sft", "pt"}, "megatrain trains on conversations and on text", "the data say which");
  });
  r.attempt([&] {
    r.expect("finetuning_type", {"full"}, "megatrain trains the weights themselves", "all weights are trained");
  });
  if (!r.theirs() || r.is_given("finetuning_type")) return;
  r.add("finetuning_type", "lora", "", "", "NOT AS THERE: all weights are trained; write finetuning_type: full")
      .warning =
      "finetuning_type is not given, which is lora in LLaMA-Factory; here all weights are trained. Write "
      "finetuning_type: full";
}

bool is_pretraining(const ForeignReader& r) { return r.text("stage", "") == "pt"; }

void packing(ForeignReader& r) {
  const bool asked = r.is_given("packing") || r.is_given("neat_packing");
  if (!asked && !r.theirs()) return;
  const bool neat = r.flag("neat_packing");
  const bool on = neat || (r.find("packing") ? r.flag("packing") : is_pretraining(r));
  const char* note = "";
  if (on && is_pretraining(r))
    note = "documents are kept apart and fill sequences; there they are one stream, cut into pieces";
  else if (on && !neat)
    note = "each sample attends to itself alone, as with neat_packing";
  else if (on)
    note = "the samples of a sequence are chosen from all, there from a thousand";
  const char* from = !r.is_given("packing") && r.is_given("neat_packing") ? "neat_packing" : "packing";
  r.add(from, is_pretraining(r) ? "true" : "false", "data.packing", on ? "true" : "false", note);
  if (r.is_given("packing")) r.idle("neat_packing", "packing keeps samples apart in any case");
}

void masks(ForeignReader& r) {
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

void batch(ForeignReader& r) {
  const char *const size = "per_device_train_batch_size", *const turns = "gradient_accumulation_steps";
  const bool asked = r.is_given(size) || r.is_given(turns);
  if (!asked && (!r.theirs() || r.own("batch"))) return;
  const int64_t micro = r.count(size, r.theirs() ? 8 : 1), times = r.count(turns, 1);
  if (r.is_given(size) || (r.theirs() && !r.own("micro_batch"))) r.add(size, "8", "micro_batch", std::to_string(micro));
  Translation& batch = r.add(r.is_given(size) ? size : turns, "1", "batch", std::to_string(micro * times));
  batch.theirs = fmt::format("{} x {}", r.shown(size, r.theirs() ? "8" : "1"), r.shown(turns, "1"));
  batch.given = asked;
}

void length(ForeignReader& r) {
  const bool own = r.own("steps") || r.own("epochs") || r.own("tokens");
  const Foreign* steps = r.find("max_steps");
  if (steps && std::stoll(foreign_whole("max_steps", *steps)) > 0) {
    r.add("max_steps", "", "steps", foreign_whole("max_steps", *steps));
    r.idle("num_train_epochs", "max_steps decides");
    return;
  }
  r.idle("max_steps", "epochs decide");
  if (r.is_given("num_train_epochs"))
    r.add("num_train_epochs", "", "epochs", foreign_number("num_train_epochs", r.given().at("num_train_epochs")));
  else if (r.theirs() && !own)
    r.add("num_train_epochs", "3.0", "epochs", "3");
}

void warmup(ForeignReader& r) {
  const Foreign *steps = r.find("warmup_steps"), *part = r.find("warmup_ratio");
  if (!steps && !part && !r.theirs()) return;
  const double in_steps = r.number("warmup_steps", 0), in_parts = r.number("warmup_ratio", 0);
  if (part && !(in_parts >= 0 && in_parts < 1))
    fail_config(
        fmt::format("{}: warmup_ratio is {}, expected a part of the run from 0 to below 1", part->where, part->text));
  const bool by_steps = in_steps > 0 || !part;
  const char* const name = by_steps ? "warmup_steps" : "warmup_ratio";
  if (hf_schedule_name(r, "lr_scheduler_type", "linear") == "constant")  // transformers' "constant" has none
    r.add(name, "0", "optim.warmup", "0", "constant has no warmup; constant_with_warmup has");
  else
    r.add(name, "0", "optim.warmup", fmt::format("{}", by_steps ? in_steps : in_parts));
  if (steps && part) r.idle(by_steps ? "warmup_ratio" : "warmup_steps", fmt::format("{} decides", name));
}

void precision(ForeignReader& r) {
  const bool asked = r.is_given("bf16") || r.is_given("pure_bf16") || r.is_given("fp16");
  if (asked || r.theirs()) {
    const bool half = r.flag("fp16"), mixed = r.flag("bf16") || r.flag("pure_bf16");
    const char* from = r.flag("pure_bf16") ? "pure_bf16" : half && !mixed ? "fp16" : "bf16";
    if (!r.is_given(from) && asked) from = r.is_given("pure_bf16") ? "pure_bf16" : "fp16";
    r.add(from, "false", "precision", mixed || half ? "bf16" : "fp32",
          half && !mixed ? "bf16 needs no loss scaling" : "weights and their state stay fp32");
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

void saves(ForeignReader& r) {
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

void evaluations(ForeignReader& r) {
  const char* const name = r.is_given("evaluation_strategy") ? "evaluation_strategy" : "eval_strategy";
  const Foreign *steps = r.find("eval_steps"), *logging = r.find("logging_steps");
  const std::string when = hf_strategy(r, name, r.theirs() ? "no" : "steps");
  bool by_logging = false;
  if (when != "steps") {
    if (r.is_given(name) || r.theirs())
      r.add(name, "no", "eval.every", when == "no" ? "0" : when,
            when == "no" ? "at the end, where there is data for it" : "");
    r.idle("eval_steps", fmt::format("{} is {}", name, when));
  } else {
    if (steps && is_on(*steps)) {
      r.add("eval_steps", "", "eval.every", hf_every("eval_steps", *steps));
    } else if (r.theirs()) {
      by_logging = true;
      r.add("logging_steps", "500", "eval.every", logging ? hf_every("logging_steps", *logging) : "500",
            "eval_steps is not given");
    }
    r.idle(name, "eval.every says when");
  }
  if (!by_logging) r.idle("logging_steps", "every step is logged");
}

void rules(ForeignReader& r) {
  method(r);
  for (void (*each)(ForeignReader&) : {data, packing, masks, batch, length, warmup, precision, saves, evaluations})
    r.attempt([&] { each(r); });
  r.attempt([&] { hf_optimizer(r, "optim_type"); });
  r.attempt([&] { hf_schedule(r, "lr_scheduler_type", "linear", "5e-5"); });
  r.attempt([&] { hf_resume(r); });
  if (!r.theirs()) return;
  if (!r.own("seed")) r.add("seed", "42", "seed", "42", "the order of the samples is another");
  r.rule("(steps and warmup)", "conventions", "transformers");
  r.attempt([&] {
    r.rule("(samples that are too long)", "data.overlong", "by_turn",
           r.flag("mask_history")      ? "the end of what comes before the last answer is kept"
           : r.flag("train_on_prompt") ? "the first seq_len tokens are kept"
                                       : "");
  });
}

std::vector<MethodParameter> parameters() {
  std::vector<MethodParameter> all = {{"freeze_trainable_*", "finetuning_type freeze"},
                                      {"freeze_extra_modules", "finetuning_type freeze"},
                                      {"pref_*", "stage dpo"},
                                      {"dpo_*", "stage dpo"},
                                      {"simpo_*", "stage dpo"},
                                      {"ld_alpha", "stage dpo"},
                                      {"kto_*", "stage kto"},
                                      {"ppo_*", "stage ppo"},
                                      {"ref_model*", "stage dpo"},
                                      {"reward_model*", "stage ppo"},
                                      {"galore_*", "GaLore"},
                                      {"apollo_*", "APOLLO"},
                                      {"badam_*", "BAdam"},
                                      {"asft_alpha", "the ASFT loss"},
                                      {"eaft_alpha", "the EAFT loss"},
                                      {"fp8_*", "FP8"},
                                      {"kt_*", "KTransformers"},
                                      {"hyper_parallel_*", "several GPUs"},
                                      {"quantization_*", "quantised models"},
                                      {"double_quantization", "quantised models"},
                                      {"export_*", "an export"},
                                      {"infer_*", "answers"},
                                      {"vllm_*", "answers"},
                                      {"sglang_*", "answers"}};
  all.insert(all.begin(), std::begin(kAdapterParameters), std::end(kAdapterParameters));
  return all;
}

}  // namespace

const ForeignTrainer& llamafactory() {
  static const ForeignTrainer kTrainer{
      .name = "LLaMA-Factory",
      .is_file = [](const std::set<std::string>& keys) { return keys.count("model_name_or_path") != 0; },
      .renamed = {kRenamed},
      .idle = {kIdle, hf_idle_keys()},
      .values = {{"stage", "dpo", "preferences (DPO)", kStages},
                 {"stage", "kto", "preferences (KTO)", kStages},
                 {"stage", "rm", "a reward model", kStages},
                 {"stage", "ppo", "reinforcement learning (PPO)", kStages}},
      .switches = {{"quantization_bit", "a quantised model (QLoRA)", kWeights},
                   {"export_quantization_bit", "quantisation", kWeights},
                   {"image_*", kSees, kOnlyText, true},
                   {"video_*", kSees, kOnlyText, true},
                   {"audio_*", kHears, kOnlyText, true},
                   {"media_dir", kSees, kOnlyText, true},
                   {"crop_to_patches", kSees, kOnlyText, true},
                   {"use_audio_in_video", kHears, kOnlyText, true},
                   {"freeze_vision_tower", kSees, kOnlyText, true},
                   {"freeze_multi_modal_projector", kSees, kOnlyText, true},
                   {"freeze_language_model", kSees, kOnlyText, true},
                   {"adapter_name_or_path", "adapters (LoRA)",
                    "merge them into the model first, and train that: all weights are"},
                   {"use_galore", "GaLore", kAdamW},
                   {"use_apollo", "APOLLO", kAdamW},
                   {"use_badam", "BAdam", kAdamW},
                   {"use_adam_mini", "Adam-mini", kAdamW},
                   {"use_muon", "Muon", kAdamW},
                   {"use_dft_loss", "the DFT loss", kCrossEntropy},
                   {"use_asft_loss", "the ASFT loss", kCrossEntropy},
                   {"use_eaft_loss", "the EAFT loss", kCrossEntropy},
                   {"neftune_noise_alpha", "noise on the embeddings (NEFTune)", "leave the key out"},
                   {"label_smoothing_factor", "label smoothing", kCrossEntropy},
                   {"use_llama_pro", "LLaMA Pro", kFull},
                   {"mixture_of_depths", "mixture of depths", "leave the key out"},
                   {"shift_attn", "S2 attention", "attention is exact over the whole sequence: leave the key out"},
                   {"fp8", "FP8", "precision is bf16 or fp32: leave the key out"},
                   {"use_unsloth", "Unsloth", "the kernels are megatrain's own: leave the key out"},
                   {"use_kt", "KTransformers", kOneGpu},
                   {"use_mca", "Megatron", kOneGpu},
                   {"use_megatron_bridge", "Megatron", kOneGpu},
                   {"tensor_model_parallel_size", "Megatron", kOneGpu},
                   {"pipeline_model_parallel_size", "Megatron", kOneGpu},
                   {"expert_model_parallel_size", "Megatron", kOneGpu},
                   {"use_hyper_parallel", "several GPUs", kOneGpu},
                   {"do_predict", "predictions", kAnswers},
                   {"predict_with_generate", "predictions", kAnswers}},
      .choices = {{"finetuning_type", "lora", "adapters (LoRA)", kFull},
                  {"finetuning_type", "oft", "adapters (OFT)", kFull},
                  {"finetuning_type", "freeze", "a choice of layers (freeze)",
                   "give finetuning_type: full, and train_only: patterns over the names of the tensors that are "
                   "trained"}},
      .parameters = parameters(),
      .ruled = {"stage",
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
                "resume_from_checkpoint"},
      .lists = {"dataset", "eval_dataset"},
      .nested = {"lr_scheduler_kwargs"},
      .refuse = refuse_more,
      .rules = rules};
  return kTrainer;
}

}  // namespace megatrain
