// How a model writes tool calls. The form is learned from what its chat template writes for a call, not from its name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/chat/chat_template.h"
#include "megatrain/io/json.h"

namespace megatrain {

struct ToolCall {
  std::string id;  // empty: the model gave none
  std::string name;
  std::string arguments;  // the text of a JSON object
};

// An answer taken apart.
struct ToolAnswer {
  std::string content;    // the text before the calls
  std::string reasoning;  // of `channels`
  std::vector<ToolCall> calls;
};

struct ToolForm {
  enum class Kind : uint8_t {
    none,      // the template writes no calls, or in a form that is not known
    object,    // {"name": …, "arguments": {…}}
    named,     // the name, a text, {…}
    fields,    // the name, and each argument between texts
    channels,  // messages to channels, as gpt-oss writes them
  };
  Kind kind = Kind::none;
  bool shows_tools = false;        // the template writes the tools of a request into the prompt
  bool arguments_as_text = false;  // the template wants arguments as text, not as an object
  // Around all calls, and between two of them; no separator: an answer has one call.
  std::string opening, separator, closing;
  // Around one of several calls, without white space at the ends. Empty if calls only stand in a list.
  std::string call_opening, call_closing;
  std::string name_key, arguments_key;                  // object
  std::string before_arguments;                         // named: behind the name
  std::string name_end, key_begin, key_end, value_end;  // fields

  static ToolForm learn(const ChatTemplate& chat);

  // The mark with which calls begin in an answer. Empty: an answer that is a call is one from its first byte.
  std::string mark() const;
  // Takes an answer apart. `text` has its special tokens. Calls of tools that are not in `tools` (the request's), and
  // what cannot be read as a call, stay text.
  ToolAnswer read(std::string_view text, const nlohmann::ordered_json& tools) const;
  // A call as the model would write it, up to its arguments, and what follows them; empty if arguments are not one JSON
  // object.
  struct Frame {
    std::string before, after;
  };
  std::optional<Frame> frame(const std::string& name) const;
};

}  // namespace megatrain
