// LLaMA-Factory: the names of its keys, which include transformers' TrainingArguments, for its own files and for single
// keys in a file of ours. Rules that involve several keys are in llamafactory_rules.cc.
#include <string>
#include <vector>

#include "megatrain/foreign/adapters.h"
#include "megatrain/foreign/hf_trainer.h"
#include "megatrain/foreign/llamafactory_rules.h"
#include "megatrain/foreign/methods.h"
#include "megatrain/foreign/sentences.h"
#include "megatrain/foreign/trainers.h"

namespace megatrain {
namespace {

constexpr RenamedKey kLlamaFactoryRenamed[] = {
    {"model_name_or_path", "model.path", ForeignKind::text, nullptr, "null"},
    {"dataset", "data.train", ForeignKind::text, nullptr, "null"},
    {"eval_dataset", "data.eval", ForeignKind::text, nullptr, "null"},
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

constexpr const char* kNoTower = "models of text are trained, which have nothing that sees";

constexpr ForeignIdle kLlamaFactoryIdle[] = {
    {"disable_gradient_checkpointing", nullptr, kPlan},
    {"use_reentrant_gc", nullptr, kPlan},
    {"use_unsloth_gc", nullptr, kPlan},
    {"offload_folder", nullptr, kPlan},
    {"flash_attn", nullptr, "attention is always the fused kernel"},
    {"enable_liger_kernel", nullptr, kFused},
    {"use_v1_kernels", nullptr, kFused},
    {"fp8_*", nullptr, kNotFp8},
    {"kt_*", nullptr, kPlan},
    {"sequence_parallel", nullptr, kSplit},
    {"context_parallel_size", nullptr, kSplit},
    {"use_distributed_optimizer", nullptr, kOneProcess},
    {"overlap_param_gather", nullptr, kOneProcess},
    {"overlap_grad_reduce", nullptr, kOneProcess},
    {"moe_token_dispatcher_type", nullptr, kOneProcess},
    {"bias_activation_fusion", nullptr, kFused},
    {"apply_rope_fusion", nullptr, kFused},
    {"moe_grouped_gemm", nullptr, kFused},
    {"recompute_granularity", nullptr, kPlan},
    {"mixed_precision", "bf16_mixed", "bf16 decides"},
    {"use_packed_sequences", "false", "packing says whether sequences are filled"},
    {"export_hf_on_finish", nullptr, "RUN/model is a Hugging Face directory"},
    {"upcast_layernorm", nullptr, "norms are computed in fp32"},
    {"upcast_lmhead_output", nullptr, "the loss is computed in fp32"},
    {"use_swanlab", nullptr, kLogged},
    {"swanlab_*", nullptr, kLogged},
    {"plot_loss", nullptr, "`megatrain report RUN` draws the curves"},
    {"print_param_status", nullptr, "`megatrain inspect` lists the tensors"},
    {"overwrite_cache", nullptr, "the cache follows the content of the files"},
    {"preprocessing_num_workers", nullptr, kTokenising},
    {"preprocessing_batch_size", nullptr, kTokenising},
    {"data_shared_file_system", nullptr, kTokenising},
    {"tokenized_path", nullptr, kTokenising},
    {"streaming", nullptr, kShuffledWhole},
    {"buffer_size", nullptr, kShuffledWhole},
    {"mix_strategy", "concat", "the weights of data.train mix datasets"},
    {"interleave_probs", "null", "the weights of data.train mix datasets"},
    {"ignore_pad_token_for_loss", "true", "padding is never trained"},
    {"default_system", "null", kTemplate},
    {"tool_format", "null", kTemplate},
    {"preserve_thinking", "false", kTemplate},
    {"freeze_vision_tower", "true null", kNoTower},
    {"freeze_multi_modal_projector", "true null", kNoTower},
    {"freeze_language_model", "false null", kNoTower},
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
    "give finetuning_type: lora, or full, which trains all weights ('megatrain plan' with the same file says whether "
    "it fits) or those that freeze or train_only leave";
constexpr const char* kStages =
    "stage sft trains on conversations and pt on text; to train on the better answers only, write them as an sft set";
constexpr const char* kWeights = "take the model's bf16 or fp32 weights: leave the key out";
constexpr const char* kPlainLora = "plain LoRA is trained: leave the key out";
constexpr const char* kAnswers = "`megatrain generate` and `megatrain eval` ask a trained model";
constexpr const char* kSees = "a model that sees (VLM)";
constexpr const char* kHears = "a model that hears";

// Uses of a file without datasets, which trains nothing.
constexpr MethodSwitch kOtherPurposes[] = {
    {"export_dir", "an export", "`megatrain export RUN --out DIR` writes a model that was trained here"},
    {"infer_backend", "answers", kAnswers},
};

void refuse_more(const ForeignTrainer& trainer, const ForeignKeys& given) {
  if (!given.count("dataset"))
    for (const MethodSwitch& each : kOtherPurposes)
      if (const auto found = given.find(each.name); found != given.end() && is_on(found->second))
        refuse_method(each.name, found->second, each.method, each.instead);
  if (llamafactory_no_lora(given)) return;
  refuse_several_adapters(given);
  refuse_unread_lora(trainer, given);
}

std::vector<MethodParameter> parameters() {
  return {{"lora_*", "LoRA"},
          {"use_rslora", "LoRA"},
          {"additional_target", "LoRA"},
          {"create_new_adapter", "LoRA"},
          {"adapter_folder", "LoRA"},
          {"loraplus_*", "LoRA+"},
          {"pissa_*", "PiSSA"},
          {"use_dora", "LoRA"},
          {"oft_*", "OFT"},
          {"module_dropout", "OFT"},
          {"freeze_trainable_*", "finetuning_type freeze"},
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
          {"hyper_parallel_*", "several GPUs"},
          {"quantization_*", "quantised models"},
          {"double_quantization", "quantised models"},
          {"export_*", "an export"},
          {"infer_*", "answers"},
          {"vllm_*", "answers"},
          {"sglang_*", "answers"}};
}

}  // namespace

const ForeignTrainer& llamafactory() {
  static const ForeignTrainer kTrainer{
      .name = "LLaMA-Factory",
      .is_file = [](const std::set<std::string>& keys) { return keys.count("model_name_or_path") != 0; },
      .renamed = {kLlamaFactoryRenamed},
      .idle = {kLlamaFactoryIdle, hf_idle_keys()},
      .values = {{"stage", "dpo", "preferences (DPO)", kStages},
                 {"stage", "kto", "preferences (KTO)", kStages},
                 {"stage", "rm", "a reward model", kStages},
                 {"stage", "ppo", "reinforcement learning (PPO)", kStages}},
      .switches = {{"quantization_bit", "a quantised model",
                    "all weights are trained, which are bf16 or fp32: leave the key out, or give finetuning_type: lora",
                    false, llamafactory_lora},
                   {"pissa_*", "PiSSA", kPlainLora, false, llamafactory_no_lora},
                   {"loraplus_*", "LoRA+", "optim.lr is one for all: leave the key out", false, llamafactory_no_lora},
                   {"adapter_folder", "an adapter in a folder of adapter_name_or_path",
                    "give that folder as adapter_name_or_path", false, llamafactory_no_lora},
                   {"export_quantization_bit", "quantisation", kWeights},
                   {"image_*", kSees, kOnlyText, true},
                   {"video_*", kSees, kOnlyText, true},
                   {"audio_*", kHears, kOnlyText, true},
                   {"media_dir", kSees, kOnlyText, true},
                   {"crop_to_patches", kSees, kOnlyText, true},
                   {"use_audio_in_video", kHears, kOnlyText, true},
                   {"adapter_name_or_path", "adapters (LoRA) beside a finetuning_type of another kind",
                    "give finetuning_type: lora, or merge the adapter into the model (megatrain merge)", false,
                    llamafactory_lora},
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
                   {"use_unsloth", "Unsloth", "the kernels are megatrain's own: leave the key out"},
                   {"use_hyper_parallel", "several GPUs", kOneGpu},
                   {"do_predict", "predictions", kAnswers},
                   {"predict_with_generate", "predictions", kAnswers}},
      .choices = {{"finetuning_type", "oft", "adapters (OFT)", kFull},
                  {"finetuning_type", "freeze", "a choice of layers (freeze)",
                   "give finetuning_type: full, and train_only: patterns over the names of the tensors that are "
                   "trained"}},
      .parameters = parameters(),
      .ruled = {"stage",
                "template",
                "enable_thinking",
                "dataset_dir",
                "finetuning_type",
                "lora_rank",
                "lora_alpha",
                "lora_dropout",
                "lora_target",
                "use_rslora",
                "use_dora",
                "additional_target",
                "adapter_name_or_path",
                "create_new_adapter",
                "fp8",
                "use_kt",
                "use_mca",
                "use_megatron_bridge",
                "tensor_model_parallel_size",
                "pipeline_model_parallel_size",
                "expert_model_parallel_size",
                "ray_num_workers",
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
                "resume_from_checkpoint",
                "report_to",
                "run_name",
                "project"},
      .lists = {"dataset", "eval_dataset", "lora_target", "additional_target", "adapter_name_or_path", "report_to"},
      .nested = {"lr_scheduler_kwargs"},
      .refuse = refuse_more,
      .rules = llamafactory_rules};
  return kTrainer;
}

}  // namespace megatrain
