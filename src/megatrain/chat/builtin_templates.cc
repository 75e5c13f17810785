#include "megatrain/chat/builtin_templates.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/chat/chat_template.h"
#include "megatrain/io/file.h"
#include "megatrain/io/replace.h"

namespace megatrain {
namespace {

constexpr const char* kChatml =
#include "megatrain/chat/builtin/chatml.inc"
    ;
constexpr const char* kLlama3 =
#include "megatrain/chat/builtin/llama3.inc"
    ;
constexpr const char* kQwen =
#include "megatrain/chat/builtin/qwen.inc"
    ;
constexpr const char* kMistral =
#include "megatrain/chat/builtin/mistral.inc"
    ;
constexpr const char* kGemma =
#include "megatrain/chat/builtin/gemma.inc"
    ;
constexpr const char* kPhi =
#include "megatrain/chat/builtin/phi.inc"
    ;
constexpr const char* kPhi4 =
#include "megatrain/chat/builtin/phi4.inc"
    ;
constexpr const char* kDeepseek =
#include "megatrain/chat/builtin/deepseek.inc"
    ;
constexpr const char* kGptOss =
#include "megatrain/chat/builtin/gpt_oss.inc"
    ;
constexpr const char* kAlpaca =
#include "megatrain/chat/builtin/alpaca.inc"
    ;
constexpr const char* kAlpacaPlain =
#include "megatrain/chat/builtin/alpaca_plain.inc"
    ;
constexpr const char* kVicuna =
#include "megatrain/chat/builtin/vicuna.inc"
    ;

struct Builtin {
  const char* name;
  const char* text;
  const char* settings = "";  // Jinja that sets the variables of a text that several names share
  bool tools = false;         // it writes tools and their calls
};

constexpr Builtin kBuiltins[] = {
    {"chatml", kChatml},
    {"llama3", kLlama3, "", true},
    {"qwen", kQwen,
     "{%- set thinks, joins = 'no', true -%}\n"
     "{%- set persona = 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' -%}\n",
     true},
    {"qwen3", kQwen,
     "{%- set thinks = 'off' if enable_thinking is defined and enable_thinking is false else 'yes' -%}\n"
     "{%- set persona, joins = '', messages[0].role == 'system' -%}\n",
     true},
    {"qwen3-thinking-off", kQwen,
     "{%- set thinks = 'yes' if enable_thinking is defined and enable_thinking is true else 'off' -%}\n"
     "{%- set persona, joins = '', messages[0].role == 'system' -%}\n",
     true},
    {"qwen3-nothink", kQwen,
     "{%- set thinks = 'no' -%}\n{%- set persona, joins = '', messages[0].role == 'system' -%}\n", true},
    {"mistral", kMistral},
    {"gemma", kGemma},
    {"phi", kPhi, "{%- set begins = false -%}\n"},
    {"phi-3", kPhi, "{%- set begins = true -%}\n"},
    {"phi4", kPhi4},
    {"deepseek", kDeepseek,
     "{%- set asks, between, answers = 'User: ', '\\n\\n', 'Assistant:' -%}\n"
     "{%- set after_system, forgets = '\\n\\n', false -%}\n"},
    {"deepseek-v2", kDeepseek,
     "{%- set asks, between, answers = '<｜User｜>', '', '<｜Assistant｜>' -%}\n"
     "{%- set after_system, forgets = '\\n\\n', false -%}\n"},
    {"deepseek3", kDeepseek,
     "{%- set asks, between, answers = '<｜User｜>', '', '<｜Assistant｜>' -%}\n"
     "{%- set after_system, forgets = '', false -%}\n"},
    {"deepseek-v3", kDeepseek,
     "{%- set asks, between, answers = '<｜User｜>', '', '<｜Assistant｜>' -%}\n"
     "{%- set after_system, forgets = '', true -%}\n"},
    {"gpt-oss", kGptOss},
    {"alpaca", kAlpaca},
    {"alpaca-plain", kAlpacaPlain},
    {"vicuna", kVicuna},
};

// What a template cannot write is refused, never left out.
constexpr const char* kRefusesTools = R"({{%- if tools or messages | selectattr('tool_calls', 'defined') |
    selectattr('tool_calls') | list -%}}
  {{{{- raise_exception('the built-in template {} has no tools; take qwen or llama3, or the model\'s own') -}}}}
{{%- endif -%}}
)";

}  // namespace

std::optional<std::string> builtin_template(const std::string& name) {
  std::string wanted = name;
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  const auto* const found =
      std::find_if(std::begin(kBuiltins), std::end(kBuiltins), [&](const Builtin& one) { return one.name == wanted; });
  if (found == std::end(kBuiltins)) return std::nullopt;
  return (found->tools ? "" : fmt::format(kRefusesTools, found->name)) + found->settings + found->text;
}

std::vector<std::string> builtin_template_names() {
  std::vector<std::string> names;
  for (const Builtin& one : kBuiltins) names.emplace_back(one.name);
  return names;
}

std::string read_template(const std::string& name_or_file) {
  if (auto text = builtin_template(name_or_file)) return *text;
  const bool is_word = name_or_file.find_first_of("./") == std::string::npos;
  if (is_word && !can_read(name_or_file))
    fail_input(
        fmt::format("there is no built-in chat template '{}', and no file of that name; the built-in ones are {}",
                    name_or_file, fmt::join(builtin_template_names(), ", ")));
  return read_text_file(name_or_file, kMaxTemplateBytes);
}

}  // namespace megatrain
