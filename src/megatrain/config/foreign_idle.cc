#include "megatrain/config/foreign_idle.h"

#include <map>
#include <sstream>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

constexpr const char* kPlan = "the plan decides what is recomputed and where state lives";
constexpr const char* kAlways = "megatrain does this always";
constexpr const char* kData = "tokenising is parallel and cached by itself";
constexpr const char* kOneGpu = "there is one process and one GPU";
constexpr const char* kLog = "every step is logged, to metrics.jsonl and TensorBoard files too";
constexpr const char* kLowest = "the best model is the one with the lowest evaluation loss";
constexpr const char* kEvaluation = "evaluation measures the loss, in the training's micro-batches";
constexpr const char* kGeneration = "it is of answers, not of training";
constexpr const char* kModel = "the model's own config.json and tokenizer decide";
constexpr const char* kTemplate = "the model's own chat template decides; data.template names another";
constexpr const char* kNoNetwork = "nothing is uploaded or downloaded";
constexpr const char* kFused = "the kernels are always fused";

struct Idle {
  const char* only;  // the values that ask for nothing, separated by spaces; nullptr: any does
  const char* why;
};

const std::map<std::string, Idle>& table() {
  static const std::map<std::string, Idle> kTable = {
      {"template", {nullptr, "the model's own chat template is used; data.template names another"}},
      {"deepspeed", {nullptr, kPlan}},
      {"gradient_checkpointing", {nullptr, kPlan}},
      {"gradient_checkpointing_kwargs", {nullptr, kPlan}},
      {"disable_gradient_checkpointing", {nullptr, kPlan}},
      {"use_reentrant_gc", {nullptr, kPlan}},
      {"use_unsloth_gc", {nullptr, kPlan}},
      {"low_cpu_mem_usage", {nullptr, kPlan}},
      {"offload_folder", {nullptr, kPlan}},
      {"torch_empty_cache_steps", {nullptr, kPlan}},
      {"auto_find_batch_size", {"false", "the batch is what the file says"}},
      {"flash_attn", {nullptr, "attention is always the fused kernel"}},
      {"enable_liger_kernel", {nullptr, kFused}},
      {"use_liger_kernel", {nullptr, kFused}},
      {"liger_kernel_config", {nullptr, kFused}},
      {"use_v1_kernels", {nullptr, kFused}},
      {"torch_compile", {nullptr, kFused}},
      {"torch_compile_backend", {nullptr, kFused}},
      {"torch_compile_mode", {nullptr, kFused}},
      {"tf32", {nullptr, "no product ever uses tf32"}},
      {"bf16_full_eval", {nullptr, "evaluation has the training's precision"}},
      {"fp16_full_eval", {nullptr, "evaluation has the training's precision"}},
      {"upcast_layernorm", {nullptr, "norms are computed in fp32"}},
      {"upcast_lmhead_output", {nullptr, "the loss is computed in fp32"}},
      {"logging_strategy", {nullptr, kLog}},
      {"logging_first_step", {nullptr, kAlways}},
      {"logging_dir", {nullptr, "TensorBoard files go to RUN/tensorboard"}},
      {"logging_nan_inf_filter", {nullptr, "a loss that is not finite ends the run"}},
      {"log_level", {nullptr, kLog}},
      {"log_level_replica", {nullptr, kOneGpu}},
      {"log_on_each_node", {nullptr, kOneGpu}},
      {"disable_tqdm", {nullptr, kLog}},
      {"report_to", {nullptr, "TensorBoard files and metrics.jsonl are always written"}},
      {"run_name", {nullptr, "run_dir names the run"}},
      {"project", {nullptr, "run_dir names the run"}},
      {"use_swanlab", {nullptr, kLog}},
      {"plot_loss", {nullptr, "`megatrain report RUN` draws the curves"}},
      {"print_param_status", {nullptr, "`megatrain inspect` lists the tensors"}},
      {"skip_memory_metrics", {nullptr, kLog}},
      {"include_num_input_tokens_seen", {nullptr, kAlways}},
      {"include_tokens_per_second", {nullptr, kAlways}},
      {"include_effective_tokens_per_second", {nullptr, kAlways}},
      {"overwrite_output_dir", {nullptr, "an earlier run is moved aside, never overwritten; --resume goes on"}},
      {"overwrite_cache", {nullptr, "the cache follows the content of the files"}},
      {"preprocessing_num_workers", {nullptr, kData}},
      {"preprocessing_batch_size", {nullptr, kData}},
      {"dataloader_num_workers", {nullptr, kData}},
      {"dataloader_pin_memory", {nullptr, kData}},
      {"dataloader_persistent_workers", {nullptr, kData}},
      {"dataloader_prefetch_factor", {nullptr, kData}},
      {"dataloader_drop_last", {"false", "every sample of an epoch is used"}},
      {"data_shared_file_system", {nullptr, kData}},
      {"tokenized_path", {nullptr, kData}},
      {"streaming", {nullptr, "datasets are tokenised in bounded memory, and shuffled whole"}},
      {"buffer_size", {nullptr, "datasets are tokenised in bounded memory, and shuffled whole"}},
      {"mix_strategy", {"concat", "the weights of data.train mix datasets"}},
      {"interleave_probs", {"null", "the weights of data.train mix datasets"}},
      {"group_by_length", {nullptr, "samples are shuffled, whatever their length"}},
      {"length_column_name", {nullptr, "samples are shuffled, whatever their length"}},
      {"data_seed", {nullptr, "the order follows seed, and is not the order there"}},
      {"remove_unused_columns", {nullptr, kAlways}},
      {"ignore_pad_token_for_loss", {"true", "padding is never trained"}},
      {"default_system", {"null", kTemplate}},
      {"tool_format", {"null", kTemplate}},
      {"enable_thinking", {"null true", kTemplate}},
      {"preserve_thinking", {"false", kTemplate}},
      {"ddp_timeout", {nullptr, kOneGpu}},
      {"ddp_backend", {nullptr, kOneGpu}},
      {"ddp_bucket_cap_mb", {nullptr, kOneGpu}},
      {"ddp_find_unused_parameters", {nullptr, kOneGpu}},
      {"local_rank", {nullptr, kOneGpu}},
      {"fsdp", {nullptr, kOneGpu}},
      {"fsdp_config", {nullptr, kOneGpu}},
      {"fsdp_transformer_layer_cls_to_wrap", {nullptr, kOneGpu}},
      {"ray_num_workers", {"1", "there is one GPU; raise gradient_accumulation_steps by that factor instead"}},
      {"ray_init_kwargs", {nullptr, kOneGpu}},
      {"save_on_each_node", {nullptr, kOneGpu}},
      {"average_tokens_across_devices", {nullptr, "the loss is the mean over the step's trained tokens"}},
      {"per_device_eval_batch_size", {nullptr, "evaluation runs in the training's micro-batches"}},
      {"eval_accumulation_steps", {nullptr, kEvaluation}},
      {"eval_on_each_dataset", {"false", "the loss is one, over all evaluation data"}},
      {"eval_on_start", {"false", "`megatrain eval` measures a model that is not trained yet"}},
      {"eval_delay", {"0 0.0", "evaluation starts after eval.every steps"}},
      {"prediction_loss_only", {nullptr, kEvaluation}},
      {"compute_accuracy", {nullptr, "evaluation measures the loss; `megatrain eval` also counts right answers"}},
      {"save_safetensors", {nullptr, kAlways}},
      {"save_only_model", {nullptr, "checkpoints hold the whole state, RUN/model the model"}},
      {"do_train", {"true", "`megatrain train` trains; `megatrain eval` measures"}},
      {"do_eval", {nullptr, "evaluation runs where there is data for it"}},
      {"trust_remote_code", {nullptr, "no code of a model is ever run"}},
      {"use_fast_tokenizer", {nullptr, kAlways}},
      {"use_cache", {nullptr, kGeneration}},
      {"use_kv_cache", {nullptr, kGeneration}},
      {"metric_for_best_model", {"loss eval_loss null", kLowest}},
      {"greater_is_better", {"false null", kLowest}},
      {"full_determinism", {nullptr, kAlways}},
      {"ignore_data_skip", {"false", "a resumed run goes on at its next sample"}},
      {"push_to_hub", {"false", kNoNetwork}},
      {"hf_hub_token", {nullptr, kNoNetwork}},
      {"ms_hub_token", {nullptr, kNoNetwork}},
      {"om_hub_token", {nullptr, kNoNetwork}},
      {"cache_dir", {"null", "the cache of Hugging Face's own tools is read ($HF_HUB_CACHE)"}},
      {"model_revision", {"main", "give model_name_or_path the directory of that revision"}},
      {"resize_vocab", {"false", kModel}},
      {"split_special_tokens", {"false", kModel}},
      {"add_tokens", {"null", kModel}},
      {"add_special_tokens", {"null", kModel}},
      {"new_special_tokens_config", {"null", kModel}},
      {"init_special_tokens", {nullptr, kModel}},
      {"rope_scaling", {"null", kModel}},
      {"train_from_scratch", {"false", "model.config: a config.json starts from random weights"}},
      {"optim_args", {"null", "the optimizer is AdamW"}},
      {"optim_target_modules", {"null", "the optimizer is AdamW"}},
      {"max_new_tokens", {nullptr, kGeneration}},
      {"max_length", {nullptr, kGeneration}},
      {"temperature", {nullptr, kGeneration}},
      {"top_p", {nullptr, kGeneration}},
      {"top_k", {nullptr, kGeneration}},
      {"do_sample", {nullptr, kGeneration}},
      {"num_beams", {nullptr, kGeneration}},
      {"eval_num_beams", {nullptr, kGeneration}},
      {"repetition_penalty", {nullptr, kGeneration}},
  };
  return kTable;
}

bool is_value(const std::string& name, const Foreign& value, const std::string& written) {
  if (written == "null") return value.null;
  if (written == "true" || written == "false") return foreign_flag(name, value) == (written == "true");
  return !value.null && value.text == written;
}

}  // namespace

bool is_idle_key(const std::string& name) { return table().count(name) != 0; }

std::string idle_note(const std::string& name, const Foreign& value) {
  const Idle& idle = table().at(name);
  if (!idle.only) return idle.why;
  std::stringstream accepted(idle.only);
  for (std::string each; accepted >> each;)
    if (is_value(name, value, each)) return idle.why;
  fail_config(fmt::format("{}: {} is '{}', expected {}: {}", value.where, name, value.null ? "null" : value.text,
                          idle.only, idle.why));
}

std::vector<std::string> idle_keys() {
  std::vector<std::string> names;
  for (const auto& [name, idle] : table()) names.push_back(name);
  return names;
}

}  // namespace megatrain
