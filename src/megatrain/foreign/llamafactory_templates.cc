#include "megatrain/foreign/llamafactory_templates.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/foreign/sentences.h"

namespace megatrain {
namespace {

// The names of all versions up to August 2026, so that a template renamed since is still accepted.
constexpr const char* kNames =
    "aeva alpaca aquila atom baichuan baichuan2 baichuan2_eval baichuan_eval bailing bailing_v2 belle billa "
    "bluelm breeze c4ai chatglm2 chatglm3 chatglm3_raw chatglm3_system chatml chatml_de codegeex2 codegeex4 "
    "cohere cpm cpm3 cpm4 cpm_o cpm_v dbrx deepseek deepseek3 deepseek_v2.5 deepseekcoder deepseekr1 default "
    "dots_ocr empty ernie ernie_nothink ernie_vl exaone falcon falcon_h1 fewshot gemma gemma2 gemma3 gemma3n "
    "gemma4 gemma4n glm4 glm45v glm4_5v glm4_7 glm4_moe glm4v glm4v_moe glm_ocr glmz1 gpt gpt_oss granite3 "
    "granite3_vision granite4 hunyuan hunyuan1_5 hunyuan_small hy3 hy_dense_1_8b hy_dense_7b idefics2 index "
    "intern intern2 intern3 intern_s1 intern_vl keye_vl kimi_vl lfm lfm2 lfm2_vl linly llama2 llama2_zh llama3 "
    "llama4 llava llava_next llava_next_llama3 llava_next_mistral llava_next_qwen llava_next_video "
    "llava_next_video_mistral llava_next_video_yi llava_next_yi marco mediatek mimo mimo_v2 mimo_vl minicpm_o "
    "minicpm_v minicpm_v_4_6 minimax1 minimax2 ministral ministral3 mistral mistral_small mllama moonlight "
    "moss_vl olmo openchat openchat-3.6 opencoder orion paligemma paligemma_chat phi phi-small phi4 phi4_mini "
    "phi_small pixtral qwen qwen2_audio qwen2_omni qwen2_vl qwen2vl qwen3 qwen3_5 qwen3_5_nothink qwen3_6 "
    "qwen3_6_nothink qwen3_nothink qwen3_omni qwen3_omni_nothink qwen3_vl qwen3_vl_nothink sailor seed_coder "
    "seed_oss skywork_o1 smollm smollm2 solar starchat telechat telechat2 vanilla vicuna video_llava xuanyuan "
    "xverse yayi yi yi-vl yi_vl yivl youtu youtu_vl yuan zephyr ziya";

// Names of templates that are built in here.
struct FactoryBuiltin {
  const char* name;
  const char* here;
  const char* note = "if the model's own chat template renders the same, that one is used";
};
constexpr const char* kFactoryThoughts =
    "thoughts are in the last answer only, as in the model's own; there empty ones are in earlier answers, too";
constexpr FactoryBuiltin kFactoryBuiltins[] = {
    {"alpaca", "alpaca"},
    {"chatml", "chatml"},
    {"deepseek", "deepseek"},
    {"deepseek3", "deepseek3"},
    {"gemma", "gemma"},
    {"gemma2", "gemma"},
    {"gemma3", "gemma"},
    {"gpt", "gpt-oss", "the published form (harmony); there a shorter system turn"},
    {"gpt_oss", "gpt-oss", "the published form (harmony); there a shorter system turn"},
    {"llama3", "llama3"},
    {"mistral", "mistral"},
    {"phi", "phi"},
    {"phi4", "phi4"},
    {"qwen", "qwen"},
    {"qwen3", "qwen3", kFactoryThoughts},
    {"qwen3_nothink", "qwen3-nothink"},
    {"vicuna", "vicuna"},
};

void check_factory_name(const Foreign& given) {
  std::istringstream names(kNames);
  const std::istream_iterator<std::string> first(names), end;
  if (std::find(first, end, given.text) != end) return;
  fail_config(fmt::format(
      "{}: template is '{}', which is not a template of LLaMA-Factory; leave the line out: the model's own chat "
      "template is used, and data.template names a file with another",
      given.where, given.text));
}

// The switch chooses between two templates of Qwen 3. Templates that never think there do not read it.
std::string with_thinking(ForeignReader& reader, const std::string& name, const std::string& here) {
  constexpr const char* kKey = "enable_thinking";
  if (!reader.is_given(kKey)) return here;
  const bool thinks = reader.find(kKey) && reader.flag(kKey);
  if (name == "qwen3") {
    if (!reader.find(kKey))
      fail_config(
          fmt::format("{}: enable_thinking is null, which trains thoughts but no empty ones; give true (empty thoughts "
                      "are trained) or false (all thoughts are left out)",
                      reader.given().at(kKey).where));
    reader.idle(kKey, thinks ? "empty thoughts are trained" : "template: all thoughts are left out");
    return thinks ? here : "qwen3-thinking-off";
  }
  if (here.empty() || here == "gpt-oss")
    reader.expect(kKey, {"true"}, "only template: qwen3 obeys it", kTemplate);
  else
    reader.idle(kKey, "the template has no thoughts");
  return here;
}

}  // namespace

void factory_template(ForeignReader& reader) {
  const Foreign* given = reader.find("template");
  if (given) check_factory_name(*given);
  const std::string name = given ? given->text : "";
  const auto* const known = std::find_if(std::begin(kFactoryBuiltins), std::end(kFactoryBuiltins),
                                         [&](const FactoryBuiltin& one) { return one.name == name; });
  if (given && reader.own("data.template")) return reader.idle("template", "data.template is given");
  if (given && reader.text("stage", "sft") == "pt") return reader.idle("template", "text has no chat template");
  const bool built_in = known != std::end(kFactoryBuiltins);
  const std::string here = with_thinking(reader, name, built_in ? known->here : "");
  if (built_in)
    reader.add("template", nullptr, "data.template", here, known->note);
  else if (given)
    reader.differs("template", kOwnTemplate,
                   fmt::format("template {} is not built in: the model's own chat template is used", name));
  else
    reader.idle("template", kOwnTemplate);
}

}  // namespace megatrain
