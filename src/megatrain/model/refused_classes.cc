#include "megatrain/model/refused_classes.h"

#include <algorithm>

namespace megatrain {
namespace {

// Classes that are refused for the same reason.
struct RefusedGroup {
  std::string_view reason, nearest;
  std::vector<std::string_view> classes;
};

constexpr std::string_view kSmall = "transformers' own Trainer: such models fit a small GPU";
constexpr std::string_view kDense = "a dense family of the same size";
constexpr std::string_view kExperts = "Qwen3-MoE, Mixtral or gpt-oss";

std::vector<RefusedGroup> encoder_groups() {
  return {
      {"it is an encoder with a causal mask",
       kSmall,
       {"BertGenerationDecoder",   "BertLMHeadModel",         "BigBirdForCausalLM",
        "CamembertForCausalLM",    "Data2VecTextForCausalLM", "ElectraForCausalLM",
        "ErnieForCausalLM",        "MegatronBertForCausalLM", "ModernBertDecoderForCausalLM",
        "ReformerModelWithLMHead", "RemBertForCausalLM",      "RoCBertForCausalLM",
        "RoFormerForCausalLM",     "RobertaForCausalLM",      "RobertaPreLayerNormForCausalLM",
        "XLMRobertaForCausalLM",   "XLMRobertaXLForCausalLM", "XLMWithLMHeadModel",
        "XLNetLMHeadModel",        "XmodForCausalLM"}},
      {"it is the decoder of an encoder-decoder",
       kSmall,
       {"BartForCausalLM", "BigBirdPegasusForCausalLM", "BlenderbotForCausalLM", "BlenderbotSmallForCausalLM",
        "MBartForCausalLM", "MarianForCausalLM", "MusicgenForCausalLM", "MusicgenMelodyForCausalLM", "MvpForCausalLM",
        "PLBartForCausalLM", "PegasusForCausalLM", "ProphetNetForCausalLM", "TrOCRForCausalLM", "WhisperForCausalLM"}},
      {"it writes or reads speech or images as well",
       "the language model inside it, if its family is supported",
       {"Emu3ForCausalLM", "FuyuForCausalLM", "GitForCausalLM", "GotOcr2ForConditionalGeneration", "MllamaForCausalLM",
        "MoshiForCausalLM", "MossTranscribeDiarizeForConditionalGeneration", "Phi4MultimodalForCausalLM"}}};
}

std::vector<RefusedGroup> dense_groups() {
  return {
      {"its positions are learned or biases of attention, and its MLP has no gate",
       kSmall,
       {"BioGptForCausalLM", "BloomForCausalLM", "CTRLLMHeadModel", "CpmAntForCausalLM", "GPT2LMHeadModel",
        "GPTBigCodeForCausalLM", "GPTNeoForCausalLM", "MptForCausalLM", "OPTForCausalLM", "OpenAIGPTLMHeadModel",
        "XGLMForCausalLM"}},
      {"its norms are layer norms and its MLP has no gate",
       kDense,
       {"CodeGenForCausalLM", "FalconForCausalLM", "GPTJForCausalLM", "GPTNeoXForCausalLM",
        "GPTNeoXJapaneseForCausalLM", "Jais2ForCausalLM", "NemotronForCausalLM", "PersimmonForCausalLM",
        "PhiForCausalLM", "Starcoder2ForCausalLM"}},
      {"its norms are layer norms", kDense, {"OlmoForCausalLM", "StableLmForCausalLM"}},
      {"its norms are layer norms, and attention and MLP read the same one",
       kDense,
       {"Cohere2ForCausalLM", "CohereCompassForCausalLM", "CohereForCausalLM"}},
      {"its MLP has no gate", kDense, {"ApertusForCausalLM", "ArceeForCausalLM", "NanoChatForCausalLM"}},
      {"its weights are ternary while it trains", kDense, {"BitNetForCausalLM"}},
      {"its attention is the difference of two softmaxes", kDense, {"DiffLlamaForCausalLM"}},
      {"it masks keys by learned weights", kDense, {"DogeForCausalLM"}},
      {"it reads bytes in patches of its own", kDense, {"BltForCausalLM"}},
      {"it runs its layers several times", kDense, {"HrmTextForCausalLM"}},
      {"its attention has sinks in dense layers", "gpt-oss", {"GraniteSWAForCausalLM"}},
      {"its norms of queries and keys stand behind RoPE", "Qwen3", {"HunYuanDenseV1ForCausalLM"}},
      {"it is Llama with a RoPE scaling that is not supported (dynamic)", "Llama", {"InternLM3ForCausalLM"}},
      {"its files name Llama's tensors in their own way", "EXAONE 4", {"ExaoneForCausalLM"}},
      {"RoPE turns pairs of the whole head in its class", "GLM-4", {"Ernie4_5ForCausalLM", "HeliumForCausalLM"}},
      {"it multiplies attention, residuals and logits in its own way", "Granite 3", {"HyperCLOVAXForCausalLM"}},
      {"its norms are Gemma's without one behind the branches",
       "Gemma 3",
       {"GemmaForCausalLM", "VaultGemmaForCausalLM"}},
      {"its windows follow layer_types that Mistral and Llama do not have",
       "Mistral or Llama",
       {"CwmForCausalLM", "MinistralForCausalLM"}},
      {"layers add embeddings of their own and share keys and values",
       "Gemma 3",
       {"Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"}},
      {"it drafts tokens for another model",
       "Gemma 4",
       {"Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"}},
  };
}

std::vector<RefusedGroup> latent_groups() {
  return {{"its attention is latent (MLA)",
           kExperts,
           {"AXK1ForCausalLM", "DeepseekV2ForCausalLM", "KimiK2ForCausalLM", "LongcatFlashForCausalLM"}},
          {"its attention is latent (MLA)", kDense, {"MiniCPM3ForCausalLM", "YoutuForCausalLM"}},
          {"an indexer chooses the keys that a query sees (sparse attention)",
           kExperts,
           {"AXK2ForCausalLM", "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM", "Dots3NoteForCausalLM",
            "GlmMoeDsaForCausalLM", "HYV4ForCausalLM", "MiniMaxM3VLForCausalLM", "Qwen4ExpForCausalLM"}}};
}

std::vector<RefusedGroup> recurrent_groups() {
  return {{"it has state space layers (Mamba)",
           kDense,
           {"BambaForCausalLM", "FalconH1ForCausalLM", "FalconMambaForCausalLM", "JambaForCausalLM",
            "Mamba2ForCausalLM", "MambaForCausalLM", "NemotronHForCausalLM", "Zamba2ForCausalLM", "ZambaForCausalLM"}},
          {"it has recurrent layers", kDense, {"RecurrentGemmaForCausalLM", "RwkvForCausalLM", "xLSTMForCausalLM"}},
          {"most of its layers use linear attention",
           kExperts,
           {"BailingHybridForCausalLM", "KimiLinearForCausalLM", "MiniMaxForCausalLM"}},
          {"most of its layers use linear attention", "Qwen3 or OLMo 3", {"OlmoHybridForCausalLM"}},
          {"it has layers of short convolutions",
           kDense,
           {"Inkling2ForCausalLM", "InklingForCausalLM", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM", "Lfm3ForCausalLM"}}};
}

std::vector<RefusedGroup> expert_groups() {
  return {{"it has shared experts (used by every token) and a sigmoid router",
           kExperts,
           {"AfmoeForCausalLM", "Cohere2MoeForCausalLM", "Dots1ForCausalLM", "ExaoneMoeForCausalLM", "FlintForCausalLM",
            "HYV3ForCausalLM", "Kolibri1ForCausalLM", "LagunaForCausalLM", "SolarOpenForCausalLM"}},
          {"it has shared experts (used by every token)",
           kExperts,
           {"AriaTextForCausalLM", "Ernie4_5_MoeForCausalLM", "GraniteMoeSWAForCausalLM", "GraniteMoeSharedForCausalLM",
            "HunYuanMoEV1ForCausalLM"}},
          {"it has shared experts (used by every token) and layers without RoPE",
           kExperts,
           {"Llama4ForCausalLM", "Llama4ForConditionalGeneration"}},
          {"it has a sigmoid router with a bias",
           kExperts,
           {"BeamForCausalLM", "MiMoV2FlashForCausalLM", "MiniMaxM2ForCausalLM"}},
          {"its experts have no gate and its norms are layer norms", kExperts, {"DbrxForCausalLM"}},
          {"it multiplies residuals and logits", "Granite 3", {"GraniteMoeForCausalLM"}},
          {"its norms of queries and keys span all heads of a layer with experts",
           "OLMo 3",
           {"FlexOlmoForCausalLM", "OlmoeForCausalLM"}},
          {"its router is SparseMixer", kExperts, {"PhimoeForCausalLM"}},
          {"its attention has experts too", kExperts, {"JetMoeForCausalLM"}},
          {"its windowed layers have a RoPE of their own beside experts", kExperts, {"MellumForCausalLM"}},
          {"its attention has convolutions and its router is an MLP", kExperts, {"ZayaForCausalLM"}}};
}

}  // namespace

const std::vector<RefusedClass>& refused_classes() {
  static const std::vector<RefusedClass> all = [] {
    std::vector<RefusedClass> list;
    for (const auto& groups :
         {encoder_groups(), dense_groups(), latent_groups(), recurrent_groups(), expert_groups()}) {
      for (const RefusedGroup& group : groups) {
        for (const std::string_view name : group.classes) list.push_back({name, group.reason, group.nearest});
      }
    }
    std::ranges::sort(list, {}, &RefusedClass::name);
    return list;
  }();
  return all;
}

std::optional<RefusedClass> refused_class(std::string_view name) {
  const auto found = std::ranges::find(refused_classes(), name, &RefusedClass::name);
  return found == refused_classes().end() ? std::nullopt : std::optional(*found);
}

}  // namespace megatrain
