// The contents of Axolotl's example files as lists of keys and values, and what its rules make of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "tests/support/llamafactory_examples.h"

namespace megatrain {

inline constexpr const char* kAlpacaSet = "[{path: alpaca.jsonl, type: alpaca}]";
inline constexpr const char* kChatSet =
    "[{path: chat.jsonl, type: chat_template, split: train, field_messages: conversations, message_property_mappings: "
    "{role: from, content: value}}]";

// The answers in the test's datasets, short enough that a sequence holds a few samples.
inline std::string axolotl_answer() { return std::string(350, 'y'); }

// The keys that nearly all of them share.
inline Keys axolotl_full() {
  return {{"base_model", "models/m"},
          {"datasets", kAlpacaSet},
          {"dataset_prepared_path", ""},
          {"val_set_size", "0.05"},
          {"output_dir", "./outputs/out"},
          {"sequence_len", "4096"},
          {"sample_packing", "true"},
          {"wandb_project", ""},
          {"wandb_name", ""},
          {"gradient_accumulation_steps", "1"},
          {"micro_batch_size", "1"},
          {"num_epochs", "1"},
          {"optimizer", "adamw_torch_fused"},
          {"lr_scheduler", "cosine"},
          {"learning_rate", "2e-5"},
          {"bf16", "auto"},
          {"tf32", "false"},
          {"gradient_checkpointing", "true"},
          {"resume_from_checkpoint", ""},
          {"logging_steps", "1"},
          {"attn_implementation", "flash_attention_2"},
          {"warmup_ratio", "0.1"},
          {"evals_per_epoch", "4"},
          {"saves_per_epoch", "1"},
          {"weight_decay", "0.0"},
          {"special_tokens", "{pad_token: <|end_of_text|>}"}};
}

inline Keys axolotl_lora(const Keys& more = {}) {
  return with(with(axolotl_full(), {{"adapter", "lora"},
                                    {"lora_r", "32"},
                                    {"lora_alpha", "16"},
                                    {"lora_dropout", "0.05"},
                                    {"lora_target_linear", "true"},
                                    {"lora_model_dir", ""},
                                    {"sequence_len", "2048"},
                                    {"gradient_accumulation_steps", "4"},
                                    {"micro_batch_size", "2"},
                                    {"num_epochs", "4"},
                                    {"optimizer", "adamw_bnb_8bit"},
                                    {"learning_rate", "0.0002"}}),
              more);
}

struct AxolotlExample {
  std::string name;
  Keys keys;
};

inline std::vector<AxolotlExample> axolotl_trained() {
  const Keys liger = {{"plugins", "[axolotl.integrations.liger.LigerPlugin]"},
                      {"liger_rope", "true"},
                      {"liger_rms_norm", "true"},
                      {"liger_fused_linear_cross_entropy", "true"}};
  const Keys oss = with(axolotl_full(), {{"use_kernels", "false"},
                                         {"model_quantization_config", "Mxfp4Config"},
                                         {"model_quantization_config_kwargs", "{dequantize: true}"},
                                         {"plugins", "[axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]"},
                                         {"experimental_skip_move_to_device", "true"},
                                         {"datasets",
                                          "[{path: chat.jsonl, type: chat_template, field_messages: "
                                          "conversations, message_property_mappings: {role: from, content: "
                                          "value}, field_thinking: thinking, template_thinking_key: "
                                          "thinking}]"},
                                         {"val_set_size", "0"},
                                         {"evals_per_epoch", "-"},
                                         {"gradient_accumulation_steps", "2"},
                                         {"optimizer", "adamw_torch_8bit"},
                                         {"lr_scheduler", "constant_with_warmup"},
                                         {"bf16", "true"},
                                         {"tf32", "true"},
                                         {"attn_implementation", "kernels-community/vllm-flash-attn3"},
                                         {"activation_offloading", "true"},
                                         {"warmup_ratio", "0.03"},
                                         {"special_tokens", "-"},
                                         {"eot_tokens", "[<|end|>]"}});
  const Keys streaming = with(axolotl_full(), {{"max_steps", "1000"},
                                               {"num_epochs", "-"},
                                               {"val_set_size", "-"},
                                               {"evals_per_epoch", "-"},
                                               {"saves_per_epoch", "-"},
                                               {"sequence_len", "1024"},
                                               {"optimizer", "adamw_torch"},
                                               {"save_strategy", "steps"},
                                               {"save_total_limit", "3"}});
  return {
      {"llama-3/fft-8b", with(axolotl_full(), {{"sequence_len", "8192"},
                                               {"gradient_accumulation_steps", "8"},
                                               {"optimizer", "paged_adamw_8bit"},
                                               {"gradient_checkpointing_kwargs", "{use_reentrant: false}"},
                                               {"evals_per_epoch", "2"}})},
      {"llama-3/fft-8b-liger-fsdp",
       with(with(axolotl_full(), liger), {{"chat_template", "llama3"},
                                          {"datasets",
                                           "[{path: chat.jsonl, type: chat_template, split: 'train[:20%]', "
                                           "field_messages: conversations, message_property_mappings: "
                                           "{role: from, content: value}}]"},
                                          {"val_set_size", "0.02"},
                                          {"gradient_accumulation_steps", "4"},
                                          {"micro_batch_size", "2"},
                                          {"evals_per_epoch", "2"},
                                          {"fsdp", "[full_shard, auto_wrap]"},
                                          {"fsdp_config", "{fsdp_offload_params: true}"}})},
      {"llama-2/fft_optimized", with(axolotl_full(), {{"model_type", "LlamaForCausalLM"},
                                                      {"tokenizer_type", "LlamaTokenizer"},
                                                      {"optimizer", "adamw_bnb_8bit"},
                                                      {"learning_rate", "0.0002"},
                                                      {"flash_attn_cross_entropy", "false"},
                                                      {"flash_attn_fuse_mlp", "true"},
                                                      {"weight_decay", "0.1"}})},
      {"mistral/config", with(axolotl_full(), {{"model_type", "MistralForCausalLM"},
                                               {"sequence_len", "8192"},
                                               {"eval_sample_packing", "false"},
                                               {"gradient_accumulation_steps", "4"},
                                               {"micro_batch_size", "2"},
                                               {"num_epochs", "4"},
                                               {"optimizer", "adamw_bnb_8bit"},
                                               {"learning_rate", "0.000005"}})},
      {"gpt-oss/gpt-oss-20b-fft-deepspeed-zero3", with(oss, {{"deepspeed", "deepspeed_configs/zero3_bf16.json"}})},
      {"gpt-oss/gpt-oss-20b-fft-fsdp2", with(oss, {{"fsdp_version", "2"}, {"fsdp_config", "{offload_params: false}"}})},
      {"phi/phi3-ft-fsdp", with(axolotl_full(), {{"val_set_size", "0"},
                                                 {"trust_remote_code", "true"},
                                                 {"gradient_accumulation_steps", "2"},
                                                 {"micro_batch_size", "12"},
                                                 {"num_epochs", "2"},
                                                 {"adam_beta2", "0.95"},
                                                 {"adam_epsilon", "0.00001"},
                                                 {"max_grad_norm", "1.0"},
                                                 {"learning_rate", "0.000003"},
                                                 {"weight_decay", "0.1"},
                                                 {"resize_token_embeddings_to_32x", "true"}})},
      {"streaming/pretrain",
       with(streaming, {{"datasets", "-"},
                        {"pretraining_dataset",
                         "[{path: text.jsonl, name: sample, type: pretrain, text_column: text, split: train}]"},
                        {"streaming_multipack_buffer_size", "10000"},
                        {"shuffle_merged_datasets", "true"},
                        {"pretrain_multipack_attn", "true"},
                        {"gradient_accumulation_steps", "8"},
                        {"learning_rate", "5e-4"},
                        {"weight_decay", "0.01"},
                        {"save_steps", "250"}})},
      {"streaming/sft", with(streaming, {{"streaming", "true"},
                                         {"gradient_accumulation_steps", "4"},
                                         {"learning_rate", "2e-4"},
                                         {"save_steps", "100"}})},
      {"qat_nvfp4/Qwen2.5-72B_baseline", with(with(axolotl_full(), liger), {{"load_in_8bit", "false"},
                                                                            {"load_in_4bit", "false"},
                                                                            {"strict", "false"},
                                                                            {"seed", "42"},
                                                                            {"chat_template", "qwen_25"},
                                                                            {"val_set_size", "-"},
                                                                            {"evals_per_epoch", "-"},
                                                                            {"sequence_len", "8096"},
                                                                            {"micro_batch_size", "16"},
                                                                            {"bf16", "true"},
                                                                            {"special_tokens", "-"}})},
      {"archived/openllama-3b/config", with(axolotl_full(), {{"val_set_size", "0.02"},
                                                             {"sequence_len", "1024"},
                                                             {"num_epochs", "4"},
                                                             {"optimizer", "adamw_bnb_8bit"},
                                                             {"learning_rate", "0.000003"},
                                                             {"float16", "true"},
                                                             {"bf16", "false"},
                                                             {"fp16", "false"},
                                                             {"weight_decay", "0.1"},
                                                             {"special_tokens", "{bos_token: <s>, eos_token: </s>}"}})},
      {"llama-3/lora-8b", axolotl_lora({{"load_in_8bit", "true"}, {"load_in_4bit", "false"}})},
      {"llama-3/qlora", axolotl_lora({{"adapter", "qlora"},
                                      {"load_in_8bit", "false"},
                                      {"load_in_4bit", "true"},
                                      {"sequence_len", "4096"},
                                      {"optimizer", "paged_adamw_32bit"}})},
      {"mistral/qlora", axolotl_lora({{"adapter", "qlora"},
                                      {"load_in_4bit", "true"},
                                      {"lora_target_modules", "[gate_proj, down_proj, up_proj, q_proj, v_proj]"},
                                      {"sequence_len", "8192"},
                                      {"num_epochs", "1"}})},
      {"devstral/devstral-small-qlora", axolotl_lora({{"adapter", "qlora"},
                                                      {"load_in_4bit", "true"},
                                                      {"tokenizer_use_mistral_common", "true"},
                                                      {"loss_watchdog_threshold", "5.0"},
                                                      {"loss_watchdog_patience", "3"},
                                                      {"datasets", "[{path: chat.jsonl, type: sharegpt}]"},
                                                      {"lora_dropout", "0"},
                                                      {"num_epochs", "1"},
                                                      {"optimizer", "adamw_torch"},
                                                      {"warmup_ratio", "0.05"},
                                                      {"val_set_size", "0.1"}})},
      {"llama-3/lora-1b-ray", axolotl_lora({{"lora_target_linear", "-"},
                                            {"lora_target_modules", "[gate_proj, down_proj, up_proj, q_proj, v_proj]"},
                                            {"use_ray", "true"},
                                            {"ray_num_workers", "4"},
                                            {"gradient_accumulation_steps", "2"},
                                            {"num_epochs", "1"},
                                            {"optimizer", "adamw_8bit"},
                                            {"val_set_size", "0.1"}})},
      {"distributed-parallel/llama-3_1-8b-hsdp-tp", with(axolotl_full(), {{"dp_shard_size", "4"},
                                                                          {"dp_replicate_size", "2"},
                                                                          {"tensor_parallel_size", "2"},
                                                                          {"fsdp_version", "2"},
                                                                          {"sequence_len", "2048"},
                                                                          {"num_epochs", "2"},
                                                                          {"lr_scheduler", "constant_with_warmup"},
                                                                          {"learning_rate", "2e-6"}})},
      {"llama-3/3b-fp8-fsdp2", with(with(axolotl_full(), liger), {{"fp8", "true"},
                                                                  {"fp8_enable_fsdp_float8_all_gather", "true"},
                                                                  {"torch_compile", "true"},
                                                                  {"sequence_len", "512"},
                                                                  {"micro_batch_size", "16"},
                                                                  {"optimizer", "adamw_torch_fused"}})},
      {"a file with unfrozen_parameters", with(axolotl_full(), {{"unfrozen_parameters",
                                                                 "[^lm_head.weight$, ^model.embed_tokens.weight$, "
                                                                 "'model.layers.4[4-9]+.block_sparse_moe.gate', "
                                                                 "'model.layers.5[0-5]+.block_sparse_moe.experts']"},
                                                                {"model_config", "{output_router_logits: true}"},
                                                                {"sequence_len", "8000"},
                                                                {"num_epochs", "3"},
                                                                {"optimizer", "adamw_bnb_8bit"},
                                                                {"learning_rate", "0.0001"}})},
      {"a file without packing and warmup", with(axolotl_full(), {{"sample_packing", "false"},
                                                                  {"warmup_ratio", "-"},
                                                                  {"micro_batch_size", "2"},
                                                                  {"gradient_accumulation_steps", "4"},
                                                                  {"num_epochs", "3"}})},
  };
}

struct AxolotlRefused {
  std::string name;
  Keys keys;
  std::string key, method;
};

inline std::vector<AxolotlRefused> axolotl_refused() {
  return {
      {"llama-3/instruct-dpo-lora-8b", axolotl_lora({{"rl", "dpo"}}), "rl: dpo", "preferences (DPO)"},
      {"llama-3/qlora-1b-kto", axolotl_lora({{"rl", "kto"}, {"rl_beta", "0.5"}}), "rl: kto", "preferences (KTO)"},
      {"mistral/mistral-qlora-orpo", axolotl_lora({{"rl", "orpo"}, {"orpo_alpha", "0.1"}}), "rl: orpo",
       "preferences (ORPO)"},
      {"qwen2/reward-model", with(axolotl_full(), {{"reward_model", "true"}, {"num_labels", "1"}}),
       "reward_model: true", "a reward model"},
      {"qwen2/prm", with(axolotl_full(), {{"process_reward_model", "true"}}), "process_reward_model: true",
       "a reward model (PRM)"},
      {"llama-2/lisa", with(axolotl_full(), {{"lisa_n_layers", "4"}, {"lisa_step_interval", "20"}}), "lisa_n_layers: 4",
       "LISA"},
      {"llama-2/gptq-lora", axolotl_lora({{"gptq", "true"}}), "gptq: true", "a quantised model (GPTQ)"},
      {"a file for LoRA+", axolotl_lora({{"loraplus_lr_ratio", "16"}}), "loraplus_lr_ratio: 16", "LoRA+"},
      {"a file for LoftQ", axolotl_lora({{"peft", "{loftq_config: {loftq_bits: 4}}"}}), "peft: {…}", "LoftQ"},
      {"a file for ReLoRA", axolotl_lora({{"relora", "true"}, {"relora_cpu_offload", "true"}}), "relora: true",
       "ReLoRA"},
      {"a file for LLaMA-Adapter", with(axolotl_full(), {{"adapter", "llama-adapter"}}), "adapter: llama-adapter",
       "adapters (LLaMA-Adapter)"},
      {"a file with load_in_4bit that trains all weights", with(axolotl_full(), {{"load_in_4bit", "true"}}),
       "load_in_4bit: true", "a quantised model"},
      {"llama-3/3b-qat-fsdp2", with(axolotl_full(), {{"qat", "{weight_dtype: int4}"}}), "qat: {…}",
       "training for quantisation (QAT)"},
      {"llama-3/sparse-finetuning", with(axolotl_full(), {{"llmcompressor", "{recipe: r}"}}), "llmcompressor: {…}",
       "a sparse model (LLMCompressor)"},
      {"llama-3/diffusion/sft-1b", with(axolotl_full(), {{"diffusion", "{noise_schedule: cosine}"}}), "diffusion: {…}",
       "a diffusion model"},
      {"llava/lora-7b", axolotl_lora({{"adapter", ""}, {"processor_type", "AutoProcessor"}}),
       "processor_type: AutoProcessor", "a model that sees or hears"},
      {"eaft/eaft-example", with(axolotl_full(), {{"use_eaft", "true"}, {"eaft_alpha", "1.0"}}), "use_eaft: true",
       "the EAFT loss"},
      {"qwen2/adamw-pretrain-fsdp2", with(axolotl_full(), {{"reinit_weights", "true"}}), "reinit_weights: true",
       "random weights"},
      {"falcon-e/falcon-e-3b-ft", with(axolotl_full(), {{"use_onebitllms", "true"}}), "use_onebitllms: true",
       "1-bit weights"},
  };
}

// How Axolotl counts steps on one GPU (its trainer builder and calculate_total_num_steps, then transformers' trainer),
// independent of megatrain's code. `rows` are samples, or packed sequences of sequence_len.
struct AxolotlRules {
  explicit AxolotlRules(const Keys& keys) : given(keys) {}
  TheirRules given;

  bool packs() const { return given.flag("sample_packing"); }
  int64_t samples_a_step() const {
    return given.whole("micro_batch_size", 1) * given.whole("gradient_accumulation_steps", 1);
  }
  int64_t held(int64_t samples) const {
    return static_cast<int64_t>(std::ceil(given.number("val_set_size", 0) * static_cast<double>(samples)));
  }
  int64_t steps(int64_t rows) const {
    if (const int64_t most = given.whole("max_steps", 0); most > 0) return most;
    const double epochs = given.number("num_epochs", 1);
    if (!packs())
      return static_cast<int64_t>(
          std::ceil(static_cast<double>(rows) * epochs / static_cast<double>(samples_a_step())));
    const int64_t loaded = std::max<int64_t>(1, rows / samples_a_step());
    return static_cast<int64_t>(std::floor(static_cast<double>(loaded) * epochs));
  }
  int64_t warmup(int64_t all) const {
    int64_t steps = 0;
    if (given.given.count("warmup_steps"))
      steps = given.whole("warmup_steps", 0);
    else if (given.given.count("warmup_ratio"))
      steps = static_cast<int64_t>(given.number("warmup_ratio", 0) * static_cast<double>(all));
    else
      steps = std::min<int64_t>(static_cast<int64_t>(0.03 * static_cast<double>(all)), 100);
    return steps == 1 ? 2 : steps;
  }
  double rate(int64_t done, int64_t all) const {
    const double peak = given.number("learning_rate", 0);
    const auto first = static_cast<double>(warmup(all)), at = static_cast<double>(done), end = static_cast<double>(all);
    if (at < first) return peak * (at / std::max(1.0, first));
    if (given.text("lr_scheduler", "cosine") != "cosine") return peak;
    const double progress = (at - first) / std::max(1.0, end - first);
    return peak * std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
  }
};

}  // namespace megatrain
