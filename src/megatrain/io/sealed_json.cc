#include "megatrain/io/sealed_json.h"

#include "megatrain/io/json_text.h"
#include "megatrain/io/xxh3.h"

namespace megatrain {

namespace {

constexpr const char* kKey = "checksum";

}  // namespace

nlohmann::json sealed(nlohmann::json document) {
  document.erase(kKey);
  const std::string text = json_text(document);
  document[kKey] = xxh3_128(text.data(), text.size());
  return document;
}

bool seal_holds(const nlohmann::json& document) {
  return document.is_object() && document.contains(kKey) && sealed(document).at(kKey) == document.at(kKey);
}

}  // namespace megatrain
