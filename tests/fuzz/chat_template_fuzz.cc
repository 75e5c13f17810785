// Any bytes as a template are either refused with an Error, or render text whose spans lie inside it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "megatrain/base/error.h"
#include "megatrain/chat/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megatrain;
  static const nlohmann::ordered_json messages = {
      {{"role", "system"}, {"content", "Be brief."}},
      {{"role", "user"}, {"content", "¿Qué?"}},
      {{"role", "assistant"},
       {"content", " Hm. "},
       {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", {{"x", 1.5}}}}}}}}},
      {{"role", "assistant"}, {"content", "Done."}, {"reasoning_content", "So."}}};
  try {
    ChatTemplate chat(std::string(reinterpret_cast<const char*>(data), size), "fuzz",
                      {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    const RenderedChat rendered =
        chat.render({.messages = messages, .tools = nlohmann::ordered_json::array({{{"name", "f"}}})});
    size_t last = 0;
    for (const TrainedSpan& span : rendered.trained) {
      if (span.begin < last || span.begin >= span.end || span.end > rendered.text.size()) __builtin_trap();
      last = span.end;
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) __builtin_trap();
  }
  return 0;
}
