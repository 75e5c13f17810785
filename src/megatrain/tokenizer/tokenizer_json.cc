#include "megatrain/tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/unicode/unicode.h"

namespace megatrain {
namespace {

constexpr int kMaxDepth = 32;

void flatten(const TokenizerNode& node, const char* key, int depth, std::vector<TokenizerNode>& out) {
  if (node.type() != "Sequence") {
    out.push_back(node);
    return;
  }
  if (depth > kMaxDepth) node.refuse("nests sequences too deeply");
  for (const TokenizerNode& item : node.at(key).items()) flatten(item, key, depth + 1, out);
}

}  // namespace

void TokenizerNode::refuse(const std::string& what) const {
  fail_input(fmt::format("{} {}; correct the file or download it again.", where(), what));
}

void TokenizerNode::unsupported(const std::string& what) const {
  fail_input(
      fmt::format("{} has {}, which megatrain does not support; use a model whose tokenizer is byte-level BPE, "
                  "SentencePiece-style BPE or Unigram.",
                  where(), what));
}

bool TokenizerNode::has(const char* key) const {
  if (!json_->is_object()) refuse(fmt::format("is {}, expected an object", json_->type_name()));
  const auto found = json_->find(key);
  return found != json_->end() && !found->is_null();
}

TokenizerNode TokenizerNode::at(const char* key) const {
  if (!has(key)) refuse(fmt::format("lacks \"{}\"", key));
  return {*json_->find(key), file_, path_.empty() ? key : path_ + "." + key};
}

std::vector<TokenizerNode> TokenizerNode::items() const {
  if (!json_->is_array()) refuse(fmt::format("is {}, expected an array", json_->type_name()));
  std::vector<TokenizerNode> result;
  for (size_t i = 0; i < json_->size(); i++) result.emplace_back((*json_)[i], file_, fmt::format("{}[{}]", path_, i));
  return result;
}

const std::string& TokenizerNode::text() const {
  if (!json_->is_string()) refuse(fmt::format("is {}, expected a string", json_->type_name()));
  return json_->get_ref<const std::string&>();
}

std::string TokenizerNode::type() const { return text("type"); }

bool TokenizerNode::boolean(const char* key) const {
  const TokenizerNode value = at(key);
  if (!value.json_->is_boolean()) value.refuse(fmt::format("is {}, expected true or false", value.json_->type_name()));
  return value.json_->get<bool>();
}

int64_t TokenizerNode::whole(const char* key) const {
  const TokenizerNode value = at(key);
  const bool fits = value.json_->is_number_unsigned() && value.json_->get<uint64_t>() <= INT32_MAX;
  if (!fits) value.refuse("is not a whole number from 0 to 2147483647");
  return value.json_->get<int64_t>();
}

uint32_t TokenizerNode::code(const char* key) const {
  const TokenizerNode value = at(key);
  const std::string& text = value.text();
  if (text.empty() || utf8_length(text[0]) != text.size()) {
    value.refuse("is not a single character");
  }
  const char* at = text.data();
  return next_code(at);
}

std::vector<TokenizerNode> flatten_sequence(const TokenizerNode& node, const char* key) {
  std::vector<TokenizerNode> result;
  flatten(node, key, 0, result);
  return result;
}

}  // namespace megatrain
