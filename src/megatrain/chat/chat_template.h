// A model's own chat template: conversations to text, byte for byte as transformers' apply_chat_template, and which
// bytes are the assistant's to train on.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/base/units.h"
#include "megatrain/io/json.h"
#include "megatrain/tokenizer/special_tokens.h"

namespace megatrain {

namespace jinja {
class Template;
class Text;
}  // namespace jinja

// What an answer's reasoning may be called; the first that is given counts.
inline constexpr const char* kReasoningKeys[] = {"reasoning_content", "thinking", "reasoning"};

inline constexpr int64_t kMaxTemplateBytes = 16 * kMiB;  // of a template's file

// Bytes [begin, end) of the text, of one message.
struct TrainedSpan {
  size_t begin = 0;
  size_t end = 0;
  int32_t message = -1;  // its index, or -1 where a {% generation %} block stands outside the loop over messages
};

struct RenderedChat {
  std::string text;
  std::vector<TrainedSpan> trained;  // in order, disjoint, not empty
  std::vector<std::string> said;     // by message: the bytes of its data, its role aside, that the text holds
  bool ends = true;                  // something that ends the last answer is trained
  bool sure = true;                  // every answer begins as its generation prompt or a plain answer does
  int renderings = 0;                // of the template that it took, this text and what its mask was found by
};

struct ChatInputs {
  nlohmann::ordered_json messages;   // an array of objects with "role"
  nlohmann::ordered_json tools;      // null, or an array of schemas
  nlohmann::ordered_json documents;  // null, or an array of objects
  nlohmann::ordered_json variables;  // null, or an object: more variables, such as enable_thinking
  bool add_generation_prompt = false;
  std::optional<std::tm> now;  // local time, for templates that print the date
};

// Safe to use from several threads at once.
class ChatTemplate {
 public:
  // From chat_template.jinja (and additional_chat_templates/*.jinja), else `chat_template` of tokenizer_config.json.
  // Throws Error(bad_input) where there is none, or it cannot be parsed.
  static ChatTemplate load(const std::string& model_directory);
  // The same, or nothing where the model has none; `template_file`, when given, stands for the model's own.
  static std::optional<ChatTemplate> find(const std::string& model_directory, const std::string& template_file = "");

  // `special_tokens` are named ("bos_token") as in tokenizer_config.json.
  ChatTemplate(const std::string& source, const std::string& name,
               std::vector<std::pair<std::string, std::string>> special_tokens = {});

  // Tokens that may end a turn, known from tokenizer.json.
  void add_special_tokens(const std::vector<std::string>& tokens);
  // Tokens that end an answer when a model writes them; eos_token is one.
  void add_end_tokens(const std::vector<std::string>& tokens);

  // The templates' own texts, each with its name; the one that conversations without tools take is "default".
  std::vector<std::pair<std::string, std::string>> sources() const;

  // Tokens that it may write as such: those known, and what stands in its source as <|...|>.
  std::vector<std::string> written_tokens() const;

  // The text, and spans for each assistant message, as chat/chat_mask.h says; where the template has
  // {% generation %} blocks, what they wrote. Throws Error(bad_input) where the template refuses the conversation.
  RenderedChat render(const ChatInputs& inputs) const;

 private:
  struct Named {
    std::string name;
    std::string text;
    std::shared_ptr<const jinja::Template> source;
  };

  ChatTemplate() = default;
  void add_source(const std::string& name, const std::string& source, const std::string& where);
  void read_config(const nlohmann::ordered_json& config, const std::string& path);
  const jinja::Template& choose(const ChatInputs& inputs) const;

  std::vector<Named> templates_;
  std::vector<std::pair<std::string, std::string>> named_tokens_;
  SpecialTokens special_tokens_, end_tokens_;
  std::vector<std::string> source_tokens_;
  std::string directory_;
};

}  // namespace megatrain
