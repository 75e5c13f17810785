// Any bytes as the body of a request are either parsed, or refused with an ApiError of status 400 whose body is JSON. A
// schema becomes a grammar, or is refused.
#include <cstddef>
#include <cstdint>
#include <string>

#include "megatrain/grammar/grammar_states.h"
#include "megatrain/grammar/json_schema.h"
#include "megatrain/io/json_text.h"
#include "megatrain/serve/api_error.h"
#include "megatrain/serve/api_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megatrain;
  const std::string body(reinterpret_cast<const char*>(data), size);
  for (const auto parse : {parse_chat_request, parse_completion_request}) {
    try {
      const ApiRequest request = parse(body);
      const int64_t prompts = request.messages.is_array() ? 1 : std::ssize(request.prompts);
      if (prompts < 1 || request.n < 1 || prompts * request.n > ApiRequest::kMostChoices) __builtin_trap();
      if (!(request.sampling.temperature >= 0 && request.sampling.top_p > 0 && request.sampling.top_p <= 1))
        __builtin_trap();
      if (request.format != ApiRequest::Format::schema) continue;
      GrammarStates states(schema_grammar(request.schema));
      for (int byte = 0; byte < 256; ++byte) states.step(states.first(), static_cast<uint8_t>(byte));
    } catch (const ApiError& error) {
      if (error.status() != 400 || json_text(error.body()).empty()) __builtin_trap();
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_input) __builtin_trap();
    }
  }
  return 0;
}
