// A model's own chat template. It renders conversations byte for byte like transformers' apply_chat_template, and tells
// which bytes are the assistant's, to be trained on.
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

// Keys that may hold an answer's reasoning; the first one present is used.
inline constexpr const char* kReasoningKeys[] = {"reasoning_content", "thinking", "reasoning"};

inline constexpr int64_t kMaxTemplateBytes = 16 * kMiB;  // of a template file

// Bytes [begin, end) of the text, from one message.
struct TrainedSpan {
  size_t begin = 0;
  size_t end = 0;
  int32_t message = -1;  // its index, or -1 for a {% generation %} block outside the loop over messages
};

struct RenderedChat {
  std::string text;
  std::vector<TrainedSpan> trained;  // in order, disjoint, not empty
  std::vector<std::string> said;     // by message: the bytes of its data, without its role, that are in the text
  bool ends = true;                  // the trained text includes something that ends the last answer
  bool sure = true;                  // every answer begins like its generation prompt or like a plain answer
  int renderings = 0;                // renderings of the template: this text and those needed to find its mask
};

struct ChatInputs {
  nlohmann::ordered_json messages;   // an array of objects with "role"
  nlohmann::ordered_json tools;      // null, or an array of schemas
  nlohmann::ordered_json documents;  // null, or an array of objects
  nlohmann::ordered_json variables;  // null, or an object with more variables, such as enable_thinking
  bool add_generation_prompt = false;
  std::optional<std::tm> now;  // local time, for templates that print the date
};

// Thread-safe.
class ChatTemplate {
 public:
  // Reads chat_template.jinja (and additional_chat_templates/*.jinja), otherwise `chat_template` in
  // tokenizer_config.json. Throws Error(bad_input) if there is none or it cannot be parsed.
  static ChatTemplate load(const std::string& model_directory);
  // The same, but empty if the model has no template. `chosen`, if given, replaces the model's own: a built-in
  // template's name (chat/builtin_templates.h) or a file.
  static std::optional<ChatTemplate> find(const std::string& model_directory, const std::string& chosen = "");

  // `special_tokens` are named ("bos_token") as in tokenizer_config.json.
  ChatTemplate(const std::string& source, const std::string& name,
               std::vector<std::pair<std::string, std::string>> special_tokens = {});

  // Adds tokens that may end a turn, known from tokenizer.json.
  void add_special_tokens(const std::vector<std::string>& tokens);
  // Adds tokens that end an answer when a model writes them; eos_token is one already.
  void add_end_tokens(const std::vector<std::string>& tokens);

  // The sources of the templates, each with its name. "default" is the one used for conversations without tools.
  std::vector<std::pair<std::string, std::string>> sources() const;

  // Special tokens that the template may write: the known ones, and those written in its source as <|...|>.
  std::vector<std::string> written_tokens() const;

  // The text, and trained spans for each assistant message as described in chat/chat_mask.h, or what the template's {%
  // generation %} blocks wrote if it has any. Throws Error(bad_input) if the template refuses the conversation.
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
