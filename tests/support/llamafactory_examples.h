// The contents of LLaMA-Factory's example files as lists of keys and values, and what its documented rules and those of
// transformers' trainer make of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

namespace megatrain {

using Keys = std::vector<std::pair<std::string, std::string>>;

// Later keys override earlier ones; a value of "-" removes the key.
inline Keys with(Keys keys, const Keys& more) {
  for (const auto& [name, value] : more) {
    std::erase_if(keys, [&name = name](const auto& key) { return key.first == name; });
    if (value != "-") keys.emplace_back(name, value);
  }
  return keys;
}

inline std::string yaml_of(const Keys& keys) {
  std::string text = "### model\n";
  for (const auto& [name, value] : keys) text += name + ": " + value + "\n";
  return text;
}

// The keys that nearly all of them share.
inline Keys supervised() {
  return {{"model_name_or_path", "models/m"},
          {"trust_remote_code", "true"},
          {"stage", "sft"},
          {"do_train", "true"},
          {"finetuning_type", "full"},
          {"dataset", "identity,alpaca_en_demo"},
          {"template", "llama3"},
          {"cutoff_len", "2048"},
          {"max_samples", "1000"},
          {"preprocessing_num_workers", "16"},
          {"dataloader_num_workers", "4"},
          {"output_dir", "saves/run"},
          {"logging_steps", "10"},
          {"save_steps", "500"},
          {"plot_loss", "true"},
          {"overwrite_output_dir", "true"},
          {"save_only_model", "false"},
          {"report_to", "none"},
          {"per_device_train_batch_size", "1"},
          {"gradient_accumulation_steps", "8"},
          {"learning_rate", "1.0e-5"},
          {"num_train_epochs", "3.0"},
          {"lr_scheduler_type", "cosine"},
          {"warmup_ratio", "0.1"},
          {"bf16", "true"},
          {"ddp_timeout", "180000000"}};
}
inline Keys lora(const Keys& more = {}) {
  const Keys base = with(supervised(), {{"finetuning_type", "lora"},
                                        {"lora_rank", "8"},
                                        {"lora_target", "all"},
                                        {"learning_rate", "1.0e-4"},
                                        {"resume_from_checkpoint", "null"}});
  return with(base, more);
}

struct Example {
  std::string name;
  Keys keys;
  std::vector<std::string> words;  // options with which megatrain can train the file
};

// Files that train all weights or adapters, and others with the one option that makes them do so.
inline std::vector<Example> trained_examples() {
  const Keys ascend = with(supervised(), {{"flash_attn", "fa2"},
                                          {"use_v1_kernels", "true"},
                                          {"dataset", "alpaca_en_demo"},
                                          {"overwrite_cache", "true"},
                                          {"logging_steps", "1"},
                                          {"max_steps", "500"},
                                          {"num_train_epochs", "-"},
                                          {"per_device_train_batch_size", "8"},
                                          {"gradient_accumulation_steps", "1"},
                                          {"resume_from_checkpoint", "null"}});
  const Keys asft = with(supervised(), {{"deepspeed", "examples/deepspeed/ds_z0_config.json"},
                                        {"use_asft_loss", "true"},
                                        {"asft_alpha", "0.1"},
                                        {"dataset", "alpaca_en_demo"},
                                        {"max_samples", "10000"},
                                        {"per_device_train_batch_size", "4"},
                                        {"learning_rate", "2.0e-5"}});
  return {
      {"train_full/qwen3_full_sft",
       with(supervised(), {{"deepspeed", "examples/deepspeed/ds_z3_config.json"},
                           {"gradient_accumulation_steps", "2"},
                           {"resume_from_checkpoint", "null"}}),
       {}},
      {"ascend/qwen3_full_sft_fsdp2", ascend, {}},
      {"ascend/qwen3_5_full_sft_fsdp2", with(ascend, {{"template", "qwen3_5_nothink"}, {"ddp_timeout", "1800"}}), {}},
      {"ascend/qwen3moe_full_sft_fsdp",
       with(ascend, {{"cutoff_len", "1024"},
                     {"max_samples", "-"},
                     {"disable_gradient_checkpointing", "false"},
                     {"save_only_model", "true"},
                     {"per_device_train_batch_size", "4"},
                     {"learning_rate", "1.0e-4"},
                     {"seed", "1234"}}),
       {}},
      {"train_lora/qwen3_lora_sft", lora(), {}},
      {"train_lora/qwen3_lora_sft_ds3",
       lora({{"deepspeed", "examples/deepspeed/ds_z3_config.json"}, {"gradient_accumulation_steps", "2"}}),
       {}},
      {"train_lora/qwen3_lora_pretrain", lora({{"stage", "pt"}, {"dataset", "c4_demo"}, {"template", "-"}}), {}},
      {"train_lora/qwen3_preprocess",
       {{"model_name_or_path", "models/m"},
        {"trust_remote_code", "true"},
        {"stage", "sft"},
        {"do_train", "true"},
        {"finetuning_type", "lora"},
        {"lora_rank", "8"},
        {"lora_target", "all"},
        {"dataset", "identity,alpaca_en_demo"},
        {"template", "qwen3_nothink"},
        {"cutoff_len", "2048"},
        {"max_samples", "1000"},
        {"preprocessing_num_workers", "16"},
        {"tokenized_path", "saves/dataset/sft"},
        {"output_dir", "saves/run"},
        {"overwrite_output_dir", "true"}},
       {}},
      {"train_qlora/qwen3_lora_sft_otfq", lora({{"quantization_bit", "4"}, {"quantization_method", "bnb"}}), {}},
      {"a file for LoRA without finetuning_type", lora({{"finetuning_type", "-"}, {"lora_target", "-"}}), {}},
      {"extras/adam_mini/qwen2_full_sft", with(supervised(), {{"use_adam_mini", "true"}}), {"--use_adam_mini=false"}},
      {"extras/dft/qwen2_full_sft", with(supervised(), {{"use_dft_loss", "true"}}), {"--use_dft_loss=false"}},
      {"extras/eaft/qwen25_05b_eaft_full",
       with(supervised(), {{"use_eaft_loss", "true"}, {"per_device_train_batch_size", "2"}}),
       {"--use_eaft_loss=false"}},
      {"extras/asft/llama2_full_asft", asft, {"--use_asft_loss=false"}},
      {"extras/asft/qwen2_full_asft",
       with(asft, {{"asft_alpha", "0.05"}, {"learning_rate", "5.0e-5"}, {"num_train_epochs", "1.0"}}),
       {"--use_asft_loss=false"}},
      {"extras/apollo/llama3_full_sft",
       with(supervised(), {{"use_apollo", "true"},
                           {"apollo_layerwise", "true"},
                           {"apollo_rank", "128"},
                           {"apollo_scale", "32.0"},
                           {"gradient_accumulation_steps", "1"},
                           {"bf16", "-"},
                           {"pure_bf16", "true"}}),
       {"--use_apollo=false"}},
      {"extras/badam/llama3_full_sft",
       with(supervised(), {{"use_badam", "true"}, {"badam_mode", "layer"}, {"bf16", "-"}, {"ddp_timeout", "-"}}),
       {"--use_badam=false"}},
      {"extras/fp8/llama3_fp8_deepspeed_sft",
       with(supervised(), {{"dataset", "identity"},
                           {"cutoff_len", "1024"},
                           {"learning_rate", "5.0e-5"},
                           {"fp8", "true"},
                           {"fp8_backend", "torchao"},
                           {"report_to", "wandb"},
                           {"run_name", "fp8"}}),
       {}},
      {"ktransformers/train_lora/qwen3moe_lora_sft_kt",
       lora({{"max_samples", "100000"}, {"use_kt", "true"}, {"kt_cpu_activation", "retain"}}),
       {}},
      {"megatron_bridge/llama3_sft",
       lora({{"dataset", "alpaca_en_demo"},
             {"max_samples", "-"},
             {"gradient_accumulation_steps", "1"},
             {"max_steps", "1000"},
             {"save_steps", "3000"},
             {"learning_rate", "5.0e-6"},
             {"warmup_ratio", "-"},
             {"warmup_steps", "10"},
             {"tensor_model_parallel_size", "1"},
             {"pipeline_model_parallel_size", "1"},
             {"context_parallel_size", "1"},
             {"expert_model_parallel_size", "1"},
             {"sequence_parallel", "false"},
             {"use_distributed_optimizer", "true"},
             {"overlap_param_gather", "true"},
             {"overlap_grad_reduce", "true"},
             {"mixed_precision", "bf16_mixed"},
             {"use_packed_sequences", "false"},
             {"export_hf_on_finish", "false"}}),
       {}},
  };
}

struct RefusedExample {
  std::string name;
  Keys keys;
  std::string key, method;  // named in the error
};

// Files that ask for something megatrain does not support.
inline std::vector<RefusedExample> refused_examples() {
  const Keys sees = {{"image_max_pixels", "262144"}, {"video_max_pixels", "16384"}};
  return {
      {"train_lora/qwen3_lora_dpo", lora({{"stage", "dpo"}, {"pref_beta", "0.1"}, {"pref_loss", "sigmoid"}}),
       "stage: dpo", "preferences (DPO)"},
      {"train_lora/qwen3_lora_kto", lora({{"stage", "kto"}, {"pref_beta", "0.1"}}), "stage: kto", "preferences (KTO)"},
      {"train_lora/qwen3_lora_reward", lora({{"stage", "rm"}}), "stage: rm", "a reward model"},
      {"train_lora/qwen3vl_lora_sft", lora(sees), "image_max_pixels: 262144", "a model that sees (VLM)"},
      {"train_full/qwen3vl_full_sft",
       with(supervised(), with(sees, {{"freeze_vision_tower", "true"}, {"freeze_language_model", "false"}})),
       "image_max_pixels: 262144", "a model that sees (VLM)"},
      {"train_full/mossvl_full_sft", with(supervised(), with(sees, {{"freeze_language_model", "false"}})),
       "image_max_pixels: 262144", "a model that sees (VLM)"},
      {"extras/pissa/llama3_lora_sft", lora({{"pissa_init", "true"}, {"pissa_iter", "16"}, {"pissa_convert", "true"}}),
       "pissa_convert: true", "PiSSA"},
      {"extras/loraplus/llama3_lora_sft", lora({{"loraplus_lr_ratio", "16.0"}}), "loraplus_lr_ratio: 16.0", "LoRA+"},
      {"a file with two adapters", lora({{"adapter_name_or_path", "saves/a,saves/b"}}),
       "adapter_name_or_path: saves/a,saves/b", "several adapters"},
      {"a file with quantization_bit that trains all weights", with(supervised(), {{"quantization_bit", "4"}}),
       "quantization_bit: 4", "a quantised model"},
      {"extras/galore/llama3_full_sft", with(supervised(), {{"use_galore", "true"}, {"galore_rank", "128"}}),
       "use_galore: true", "GaLore"},
      {"extras/apollo/llama3_full_sft", with(supervised(), {{"use_apollo", "true"}}), "use_apollo: true", "APOLLO"},
      {"extras/badam/llama3_full_sft", with(supervised(), {{"use_badam", "true"}}), "use_badam: true", "BAdam"},
      {"extras/adam_mini/qwen2_full_sft", with(supervised(), {{"use_adam_mini", "true"}}), "use_adam_mini: true",
       "Adam-mini"},
      {"extras/muon/qwen2_full_sft", with(supervised(), {{"use_muon", "true"}}), "use_muon: true", "Muon"},
      {"extras/dft/qwen2_full_sft", with(supervised(), {{"use_dft_loss", "true"}}), "use_dft_loss: true",
       "the DFT loss"},
      {"extras/mod/llama3_full_sft", with(supervised(), {{"mixture_of_depths", "convert"}}),
       "mixture_of_depths: convert", "mixture of depths"},
      {"extras/llama_pro/llama3_freeze_sft",
       with(supervised(), {{"finetuning_type", "freeze"}, {"freeze_trainable_layers", "8"}}), "finetuning_type: freeze",
       "a choice of layers (freeze)"},
      {"extras/oft/llama3_oft_sft", with(supervised(), {{"finetuning_type", "oft"}, {"oft_block_size", "32"}}),
       "finetuning_type: oft", "adapters (OFT)"},
      {"extras/nlg_eval/llama3_lora_predict",
       lora({{"do_train", "-"}, {"do_predict", "true"}, {"adapter_name_or_path", "saves/x"}}), "do_predict: true",
       "predictions"},
      {"merge_lora/qwen3_full_sft",
       {{"model_name_or_path", "m"}, {"template", "t"}, {"export_dir", "out"}, {"export_size", "5"}},
       "export_dir: out",
       "an export"},
      {"inference/qwen3_full_sft",
       {{"model_name_or_path", "m"}, {"template", "t"}, {"infer_backend", "huggingface"}},
       "infer_backend: huggingface",
       "answers"},
  };
}

// The number of samples in the demo datasets, limited to max_samples.
inline int64_t samples_of(const std::string& datasets, int64_t most) {
  const std::map<std::string, int64_t> sizes = {{"identity", 91}, {"alpaca_en_demo", 999}, {"c4_demo", 300}};
  int64_t all = 0;
  for (const auto& [name, size] : sizes)
    if (datasets.find(name) != std::string::npos) all += most > 0 ? std::min(most, size) : size;
  return all;
}

// The defaults of LLaMA-Factory's arguments and of transformers' TrainingArguments, and what follows from a file.
// Written from their documentation, independent of megatrain's code.
struct TheirRules {
  explicit TheirRules(const Keys& keys) {
    for (const auto& [name, value] : keys) given[name] = value;
  }
  std::map<std::string, std::string> given;

  std::string text(const char* name, const char* standard) const {
    const auto found = given.find(name);
    return found == given.end() ? standard : found->second;
  }
  double number(const char* name, double standard) const {
    return given.count(name) ? std::stod(given.at(name)) : standard;
  }
  int64_t whole(const char* name, int64_t standard) const { return static_cast<int64_t>(number(name, standard)); }
  bool flag(const char* name) const { return text(name, "false") == "true"; }

  int64_t samples_a_step() const {
    return whole("per_device_train_batch_size", 8) * whole("gradient_accumulation_steps", 1);
  }
  // Micro-batches in an epoch, the last one smaller; then groups of them, the last one with fewer.
  int64_t steps_an_epoch(int64_t samples) const {
    const int64_t size = whole("per_device_train_batch_size", 8), turns = whole("gradient_accumulation_steps", 1);
    const int64_t micro = samples / size + (samples % size != 0);
    return std::max<int64_t>(micro / turns + (micro % turns != 0), 1);
  }
  int64_t steps(int64_t samples) const {
    if (const int64_t most = whole("max_steps", -1); most > 0) return most;
    return static_cast<int64_t>(
        std::ceil(number("num_train_epochs", 3.0) * static_cast<double>(steps_an_epoch(samples))));
  }
  int64_t warmup(int64_t all) const {
    if (const int64_t steps = whole("warmup_steps", 0); steps > 0) return steps;
    return static_cast<int64_t>(std::ceil(static_cast<double>(all) * number("warmup_ratio", 0.0)));
  }
  // For the update after `done` others.
  double rate(int64_t done, int64_t all) const {
    const double peak = number("learning_rate", 5e-5);
    const auto first = static_cast<double>(warmup(all)), at = static_cast<double>(done), end = static_cast<double>(all);
    if (at < first) return peak * (at / std::max(1.0, first));
    if (text("lr_scheduler_type", "linear") == "linear")
      return peak * std::max(0.0, (end - at) / std::max(1.0, end - first));
    const double progress = (at - first) / std::max(1.0, end - first);
    return peak * std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
  }
};

}  // namespace megatrain
