// Reads a tokenizer.json with errors that name the file and the place in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/io/json.h"

namespace megatrain {

// A value of the file and its path there, such as "pre_tokenizer.pretokenizers[1]". Throws Error(bad_input) if
// something is missing.
class TokenizerNode {
 public:
  TokenizerNode(const nlohmann::json& json, std::string file, std::string path)
      : json_(&json), file_(std::move(file)), path_(std::move(path)) {}

  const nlohmann::json& json() const { return *json_; }
  std::string where() const { return path_.empty() ? file_ : file_ + ": " + path_; }
  [[noreturn]] void refuse(const std::string& what) const;  // "{where} {what}; correct the file …"
  [[noreturn]] void unsupported(
      const std::string& what) const;  // "{where} has {what}, which megatrain does not support …"

  bool has(const char* key) const;  // and it is not null
  TokenizerNode at(const char* key) const;
  std::vector<TokenizerNode> items() const;  // of an array

  const std::string& text() const;
  std::string text(const char* key) const { return at(key).text(); }
  std::string text_or(const char* key, const std::string& otherwise) const { return has(key) ? text(key) : otherwise; }
  std::string type() const;  // of an object: its "type"
  bool boolean(const char* key) const;
  bool boolean_or(const char* key, bool otherwise) const { return has(key) ? boolean(key) : otherwise; }
  int64_t whole(const char* key) const;
  uint32_t code(const char* key) const;  // a string of one code point

 private:
  const nlohmann::json* json_;
  std::string file_;
  std::string path_;
};

// The object itself, or all members of {"type": "Sequence", key: […]} in order.
std::vector<TokenizerNode> flatten_sequence(const TokenizerNode& node, const char* key);

}  // namespace megatrain
