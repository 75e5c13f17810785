// The tokenizers of tests/tokenizer as parts of model directories, with the changes that tests make to them.
#pragma once

#include <algorithm>
#include <functional>

#include "megatrain/base/log.h"
#include "megatrain/chat/model_text.h"
#include "tests/support/places.h"
#include "tests/support/read_gguf.h"

namespace megatrain {

inline const std::string kGoldens = in_repository("tests/parity/goldens/");

using TokenizerChange = std::function<void(nlohmann::json&)>;

// A folder with a changed NAME.tokenizer.json as its tokenizer.json, and a tokenizer_config.json.
inline ModelText text_of(const TemporaryDirectory& directory, const std::string& name,
                         const TokenizerChange& change = {}, const nlohmann::json& config = nlohmann::json::object()) {
  nlohmann::json file =
      nlohmann::json::parse(read_bytes(in_repository("tests/tokenizer/goldens/") + name + ".tokenizer.json"));
  if (change) change(file);
  write_bytes(directory / "tokenizer.json", file.dump());
  write_bytes(directory / "tokenizer_config.json", config.dump());
  set_log_quiet(true);
  return ModelText::load(directory.path());
}

// The token that a merge produces.
inline std::string made_by(const nlohmann::json& merge) {
  if (merge.is_array()) return merge[0].get<std::string>() + merge[1].get<std::string>();
  std::string text = merge.get<std::string>();
  return text.erase(text.find(' '), 1);
}

// The merges of a SentencePiece model: every way to make a token from two others, in the order of the tokens.
inline void list_all_merges(nlohmann::json& file) {
  nlohmann::json& model = file.at("model");
  std::vector<std::string> order;
  for (const nlohmann::json& merge : model.at("merges")) {
    const std::string token = made_by(merge);
    if (std::find(order.begin(), order.end(), token) == order.end()) order.push_back(token);
  }
  nlohmann::json merges = nlohmann::json::array();
  for (const std::string& token : order) {
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if (model.at("vocab").contains(token.substr(0, cut)) && model.at("vocab").contains(token.substr(cut)))
        merges.push_back({token.substr(0, cut), token.substr(cut)});
    }
  }
  model["merges"] = merges;
}

}  // namespace megatrain
