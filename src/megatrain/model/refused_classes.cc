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
      {"its norms are layer norms with biases and its MLP has no gate",
       kDense,
       {"CodeGenForCausalLM", "FalconForCausalLM", "GPTJForCausalLM", "GPTNeoXForCausalLM",
        "GPTNeoXJapaneseForCausalLM", "Jais2ForCausalLM", "NemotronForCausalLM", "PersimmonForCausalLM",
        "PhiForCausalLM", "Starcoder2ForCausalLM"}},
      {"its norms are layer norms with biases", kDense, {"StableLmForCausalLM"}},
      {"its norms have no weights", "OLMo 2 or Qwen3", {"NanoChatForCausalLM", "OlmoForCausalLM"}},
      {"its MLP's activation has learned numbers (xIELU)", kDense, {"ApertusForCausalLM"}},
      {"its weights are ternary while it trains", kDense, {"BitNetForCausalLM"}},
      {"its attention is the difference of two softmaxes", kDense, {"DiffLlamaForCausalLM"}},
      {"it masks keys by learned weights", kDense, {"DogeForCausalLM"}},
      {"it reads bytes in patches of its own", kDense, {"BltForCausalLM"}},
      {"it runs its layers several times", kDense, {"HrmTextForCausalLM"}},
      {"its attention has sinks in dense layers", "gpt-oss", {"GraniteSWAForCausalLM"}},
      {"its norms of queries and keys stand behind RoPE",
       "Qwen3",
       {"HunYuanDenseV1ForCausalLM", "HunYuanMoEV1ForCausalLM"}},
      {"it is Llama with a RoPE scaling that is not supported (dynamic)", "Llama", {"InternLM3ForCausalLM"}},
      {"its files name Llama's tensors in their own way", "EXAONE 4", {"ExaoneForCausalLM"}},
      {"norms stand behind its branches, before Granite's multipliers", "Granite 3", {"HyperCLOVAXForCausalLM"}},
      {"its layers have other RoPEs by their kind, in pairs", "Cohere 2", {"CohereCompassForCausalLM"}},
      {"its windows follow layer_types that Mistral and Llama do not have",
       "Mistral or Llama",
       {"CwmForCausalLM", "MinistralForCausalLM"}},
      {"its residual stream is four streams (AltUp)",
       "Gemma 4",
       {"Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"}},
      {"it drafts tokens for another model",
       "Gemma 4",
       {"Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"}},
  };
}

// All that these compute exists here: each would be one file in families/.
std::vector<RefusedGroup> unwritten_groups() {
  return {
      {"its family is not written: it has Qwen 3's attention and DeepSeek V3's experts",
       "GLM 4.5",
       {"Dots1ForCausalLM", "HYV3ForCausalLM"}},
      {"its family is not written: it has EXAONE 4's attention and DeepSeek V3's experts",
       "EXAONE 4",
       {"ExaoneMoeForCausalLM"}},
      {"its family is not written: it has Llama's attention and GLM 4.5's experts",
       "GLM 4.5",
       {"SolarOpenForCausalLM"}},
      {"its family is not written: it is Granite 4 without Mamba",
       "Granite 4",
       {"GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"}},
      {"its family is not written: it is Llama with experts beside shared ones", "Qwen2-MoE", {"AriaTextForCausalLM"}},
      {"its family is not written: it has latent attention without experts", "GLM 4.7 Flash", {"YoutuForCausalLM"}},
      {"its family is not written: it is Qwen3-MoE with windows that have a RoPE of their own",
       "Qwen3-MoE",
       {"MellumForCausalLM"}},
      {"its family is not written: it is Llama with RoPE in pairs", "ERNIE 4.5", {"HeliumForCausalLM"}},
      {"its family is not written: it is Gemma with windows and caps", "Gemma 2", {"VaultGemmaForCausalLM"}},
      {"its family is not written: it is Granite 4 H with RoPE on half of each head",
       "Granite 4 H",
       {"BambaForCausalLM"}},
      {"its family is not written: it is LFM2 with experts", "LFM2", {"Lfm2MoeForCausalLM"}},
  };
}

std::vector<RefusedGroup> latent_groups() {
  return {{"its router keeps groups of experts by their best one, and its weights are a softmax that is not normalised",
           "DeepSeek V3",
           {"DeepseekV2ForCausalLM"}},
          {"a norm stands behind its experts", "DeepSeek V3", {"AXK1ForCausalLM"}},
          {"releases and transformers have no such class: Kimi K2's files name DeepseekV3ForCausalLM",
           "Kimi K2",
           {"KimiK2ForCausalLM"}},
          {"its layers have two attentions each, and some of its experts do nothing",
           "DeepSeek V3",
           {"LongcatFlashForCausalLM"}},
          {"its latent attention has longrope and multipliers", "GLM 4.7 Flash", {"MiniCPM3ForCausalLM"}},
          {"an indexer chooses the keys that a query sees (sparse attention)",
           kExperts,
           {"AXK2ForCausalLM", "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM", "Dots3NoteForCausalLM",
            "GlmMoeDsaForCausalLM", "HYV4ForCausalLM", "MiniMaxM3VLForCausalLM", "Qwen4ExpForCausalLM"}}};
}

std::vector<RefusedGroup> recurrent_groups() {
  return {{"its state space layers are Mamba 1",
           "Granite 4 H or Falcon-H1",
           {"FalconMambaForCausalLM", "JambaForCausalLM", "MambaForCausalLM"}},
          {"its layers are Mamba 2 without MLPs", "Nemotron-H", {"Mamba2ForCausalLM"}},
          {"its attention is shared by several layers", "Granite 4 H", {"Zamba2ForCausalLM", "ZambaForCausalLM"}},
          {"it has recurrent layers", kDense, {"RecurrentGemmaForCausalLM", "RwkvForCausalLM", "xLSTMForCausalLM"}},
          {"most of its layers use linear attention",
           kExperts,
           {"BailingHybridForCausalLM", "KimiLinearForCausalLM", "MiniMaxForCausalLM"}},
          {"most of its layers use linear attention", "Qwen3 or OLMo 3", {"OlmoHybridForCausalLM"}},
          {"short convolutions stand within its attention, whose positions are biases",
           "LFM2",
           {"Inkling2ForCausalLM", "InklingForCausalLM"}},
          {"its convolutions read seven tokens, and its attention has an output gate for each head",
           "LFM2",
           {"Lfm3ForCausalLM"}}};
}

std::vector<RefusedGroup> expert_groups() {
  return {{"its attention has an output gate with a matrix of its own",
           kExperts,
           {"AfmoeForCausalLM", "BeamForCausalLM", "LagunaForCausalLM"}},
          {"its experts stand beside attention, not behind it", "Cohere 2", {"Cohere2MoeForCausalLM"}},
          {"its router takes sigmoids without a bias, and its attention has sinks", kExperts, {"FlintForCausalLM"}},
          {"its router's bias is added to logits, not to scores", "GLM 4.5", {"Kolibri1ForCausalLM"}},
          {"its router's bias is added to a softmax", "Qwen3-MoE", {"Ernie4_5_MoeForCausalLM"}},
          {"its attention has sinks beside Granite's multipliers", "Granite 4", {"GraniteMoeSWAForCausalLM"}},
          {"its attention is chunked, and its router multiplies the experts' inputs",
           kExperts,
           {"Llama4ForCausalLM", "Llama4ForConditionalGeneration"}},
          {"its values are narrower than its keys, and kinds of layers differ in their key heads",
           "MiniMax M2",
           {"MiMoV2FlashForCausalLM"}},
          {"it clips queries, keys and values, and its layer norms stand otherwise", kExperts, {"DbrxForCausalLM"}},
          {"its norms stand behind the experts", "OLMoE", {"FlexOlmoForCausalLM"}},
          {"its router is SparseMixer", kExperts, {"PhimoeForCausalLM"}},
          {"its attention has experts too", kExperts, {"JetMoeForCausalLM"}},
          {"its attention has convolutions and its router is an MLP", kExperts, {"ZayaForCausalLM"}}};
}

}  // namespace

const std::vector<RefusedClass>& refused_classes() {
  static const std::vector<RefusedClass> all = [] {
    std::vector<RefusedClass> list;
    for (const auto& groups :
         {encoder_groups(), dense_groups(), unwritten_groups(), latent_groups(), recurrent_groups(), expert_groups()}) {
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
