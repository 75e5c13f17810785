// The first byte chooses a tokenizer. Any text after it is refused as invalid UTF-8, or becomes tokens that decode and
// whose ranges stay inside it. Bytes that start with '{' are read as a tokenizer.json, which is refused with an Error
// or encodes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/tokenizer/tokenizer.h"
#include "tests/support/places.h"

namespace {

using namespace megatrain;

void encode(const Tokenizer& tokenizer, std::string_view text) {
  const Encoding encoding = tokenizer.encode_with_ranges(text, true);
  if (encoding.ids != tokenizer.encode(text, true)) __builtin_trap();
  for (const ByteRange& range : encoding.ranges) {
    if (range.begin > range.end || range.end > text.size()) __builtin_trap();
  }
  StreamDecoder stream(tokenizer, false);
  for (const int32_t id : encoding.ids) stream.add(id);
  stream.finish();
  tokenizer.decode(encoding.ids, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string goldens = in_repository("tests/tokenizer/goldens/");
  static const std::vector<Tokenizer> tokenizers = [] {
    std::vector<Tokenizer> made;
    for (const char* const name : {"llama3", "qwen", "gpt2", "deepseek", "llama2", "mistral", "folded", "affixed",
                                   "bytes_first", "t5", "llm_jp", "helium"}) {
      made.push_back(Tokenizer::from_file(goldens + name + ".tokenizer.json"));
    }
    return made;
  }();
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (text[0] == '{') {
      encode(Tokenizer::from_json(text, "fuzz.json"), "abc de \xC3\xA9 12");
    } else {
      encode(tokenizers[data[0] % tokenizers.size()], text.substr(1));
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) __builtin_trap();
  }
  return 0;
}
