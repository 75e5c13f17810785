#include "megatrain/io/given_json.h"

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"

namespace megatrain {

nlohmann::json read_given_json(const std::string& path, const std::string& expected) {
  const std::string text = read_text_file(path, kMaxJsonFileBytes);
  try {
    return parse_json(text, path, expected);
  } catch (const Error& error) {
    fail_config(error.what());
  }
}

}  // namespace megatrain
