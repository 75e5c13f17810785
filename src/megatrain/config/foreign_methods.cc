#include "megatrain/config/foreign_methods.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

constexpr const char* kFull =
    "all weights are trained, and fit on one GPU without adapters: give finetuning_type: full, and freeze or "
    "train_only "
    "(patterns over tensor names) to train a part of them";
constexpr const char* kNoPreferences =
    "stage sft trains on conversations and pt on text; to go on with the better answers alone, write them as an sft "
    "set";
constexpr const char* kText = "models of text are trained; take one, and datasets without images, video and sound";
constexpr const char* kAdamW =
    "the optimizer is AdamW in fp32, whose state lives in host memory where the GPU is full: "
    "leave the key out";
constexpr const char* kLoss = "the loss is cross-entropy: leave the key out";
constexpr const char* kOneGpu = "one process trains on one GPU: leave the key out";
constexpr const char* kWeights = "take the model's bf16 or fp32 weights and finetuning_type: full";
constexpr const char* kAnswers = "`megatrain generate` and `megatrain eval` ask a trained model";

struct Choice {
  const char* value;
  const char* method;
  const char* instead;
};
constexpr Choice kStages[] = {{"dpo", "preferences (DPO)", kNoPreferences},
                              {"kto", "preferences (KTO)", kNoPreferences},
                              {"rm", "a reward model", kNoPreferences},
                              {"ppo", "reinforcement learning (PPO)", kNoPreferences}};
constexpr Choice kTypes[] = {{"lora", "adapters (LoRA)", kFull},
                             {"oft", "adapters (OFT)", kFull},
                             {"freeze", "a choice of layers (freeze)",
                              "give finetuning_type: full, and train_only: patterns over the names of the tensors that "
                              "are trained"}};

// Keys that ask for a method when they are switched on; a name that ends in * stands for all that begin so.
struct Switch {
  const char* name;
  const char* method;
  const char* instead;
};
constexpr Switch kSwitches[] = {
    {"quantization_bit", "a quantised model (QLoRA)", kWeights},
    {"export_quantization_bit", "quantisation", kWeights},
    {"image_*", "a model that sees (VLM)", kText},
    {"video_*", "a model that sees (VLM)", kText},
    {"audio_*", "a model that hears", kText},
    {"media_dir", "a model that sees (VLM)", kText},
    {"crop_to_patches", "a model that sees (VLM)", kText},
    {"use_audio_in_video", "a model that hears", kText},
    {"freeze_vision_tower", "a model that sees (VLM)", kText},
    {"freeze_multi_modal_projector", "a model that sees (VLM)", kText},
    {"freeze_language_model", "a model that sees (VLM)", kText},
    {"adapter_name_or_path", "adapters (LoRA)", "merge them into the model first, and train that: all weights are"},
    {"use_galore", "GaLore", kAdamW},
    {"use_apollo", "APOLLO", kAdamW},
    {"use_badam", "BAdam", kAdamW},
    {"use_adam_mini", "Adam-mini", kAdamW},
    {"use_muon", "Muon", kAdamW},
    {"use_dft_loss", "the DFT loss", kLoss},
    {"use_asft_loss", "the ASFT loss", kLoss},
    {"use_eaft_loss", "the EAFT loss", kLoss},
    {"neftune_noise_alpha", "noise on the embeddings (NEFTune)", "leave the key out"},
    {"label_smoothing_factor", "label smoothing", kLoss},
    {"use_llama_pro", "LLaMA Pro", kFull},
    {"mixture_of_depths", "mixture of depths", "leave the key out"},
    {"shift_attn", "S2 attention", "attention is exact over the whole sequence: leave the key out"},
    {"fp8", "FP8", "precision is bf16 or fp32: leave the key out"},
    {"use_unsloth", "Unsloth", "the kernels are megatrain's own: leave the key out"},
    {"use_kt", "KTransformers", kOneGpu},
    {"use_mca", "Megatron", kOneGpu},
    {"use_megatron_bridge", "Megatron", kOneGpu},
    {"use_hyper_parallel", "several GPUs", kOneGpu},
    {"do_predict", "predictions", kAnswers},
    {"predict_with_generate", "predictions", kAnswers},
};

// Of a file without datasets, which trains nothing.
constexpr Switch kOtherPurposes[] = {
    {"export_dir", "an export", "`megatrain export RUN --out DIR` writes a model that was trained here"},
    {"infer_backend", "answers", kAnswers},
};

// Parameters of methods: they ask for nothing while the method is off.
struct Parameter {
  const char* name;
  const char* of;
};
constexpr Parameter kAdapterParameters[] = {{"lora_*", "LoRA"},
                                            {"loraplus_*", "LoRA"},
                                            {"pissa_*", "LoRA"},
                                            {"use_rslora", "LoRA"},
                                            {"use_dora", "LoRA"},
                                            {"additional_target", "LoRA"},
                                            {"create_new_adapter", "LoRA"},
                                            {"adapter_folder", "LoRA"},
                                            {"oft_*", "OFT"},
                                            {"module_dropout", "OFT"}};
constexpr Parameter kParameters[] = {{"freeze_trainable_*", "finetuning_type freeze"},
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

bool matches(std::string_view pattern, std::string_view name) {
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
}

template <class List>
const auto* find(const List& list, std::string_view name) {
  const auto found =
      std::find_if(std::begin(list), std::end(list), [&](const auto& each) { return matches(each.name, name); });
  return found == std::end(list) ? nullptr : &*found;
}

[[noreturn]] void refuse(const std::string& name, const Foreign& value, const char* method, const char* instead) {
  fail_config(fmt::format("{}: {}: {} asks for {}, which megatrain does not do; {}", value.where, name, value.text,
                          method, instead));
}

template <class List>
void refuse_choice(const ForeignKeys& given, const char* name, const List& list) {
  const auto found = given.find(name);
  if (found == given.end()) return;
  for (const Choice& each : list)
    if (found->second.text == each.value) refuse(name, found->second, each.method, each.instead);
}

// In the order of the list, so that the file's method is named rather than a detail of it.
template <class List>
void refuse_switches(const ForeignKeys& given, const List& list) {
  for (const Switch& each : list) {
    for (const auto& [name, value] : given) {
      // A freeze_vision_tower that is false is there for a model that sees as well.
      const bool sees = std::string_view(each.method).starts_with("a model that");
      if (matches(each.name, name) && (sees ? !value.null : is_on(value)))
        refuse(name, value, each.method, each.instead);
    }
  }
}

}  // namespace

bool is_method_key(const std::string& name) {
  return find(kSwitches, name) || find(kOtherPurposes, name) || find(kAdapterParameters, name) ||
         find(kParameters, name);
}

void refuse_methods(const ForeignKeys& given) {
  refuse_choice(given, "stage", kStages);
  refuse_switches(given, kSwitches);
  refuse_choice(given, "finetuning_type", kTypes);
  if (!given.count("finetuning_type")) {  // theirs is lora then
    for (const auto& [name, value] : given)
      if (const Parameter* of = find(kAdapterParameters, name); of && !value.null)
        refuse(name, value, fmt::format("adapters ({})", of->of).c_str(), kFull);
  }
  if (!given.count("dataset")) refuse_switches(given, kOtherPurposes);
}

std::string method_note(const std::string& name) {
  if (const Parameter* parameter = find(kAdapterParameters, name))
    return fmt::format("not used: it is of {}", parameter->of);
  if (const Parameter* parameter = find(kParameters, name)) return fmt::format("not used: it is of {}", parameter->of);
  return "not used: it is switched off";
}

}  // namespace megatrain
