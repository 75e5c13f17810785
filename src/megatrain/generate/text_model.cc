#include "megatrain/generate/text_model.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"

namespace megatrain {

namespace {

Tokenizer load_tokenizer(const std::string& directory) {
  const std::string path = directory + "/tokenizer.json";
  if (!std::filesystem::exists(path)) {
    fail_input(
        fmt::format("{} has no tokenizer.json, so text cannot become tokens; copy it from the model this one was "
                    "made of",
                    directory));
  }
  return Tokenizer::from_file(path);
}

bool has_template(const std::string& directory) {
  if (std::filesystem::exists(directory + "/chat_template.jinja")) return true;
  const std::string path = directory + "/tokenizer_config.json";
  if (!std::filesystem::exists(path)) return false;
  const nlohmann::json config = read_json_file(path);
  return config.is_object() && config.contains("chat_template") && !config.at("chat_template").is_null();
}

// A file that may be absent, as an object.
nlohmann::json read_optional(const std::string& path) {
  if (!std::filesystem::exists(path)) return nlohmann::json::object();
  nlohmann::json json = read_json_file(path);
  return json.is_object() ? json : nlohmann::json::object();
}

}  // namespace

TextModel::TextModel(const std::string& directory) : directory_(directory), tokenizer_(load_tokenizer(directory)) {
  read_end_ids();
  chat_end_ids_ = end_ids_;
  if (!has_template(directory)) return;
  chat_ = std::make_unique<ChatTemplate>(ChatTemplate::load(directory));
  std::vector<std::string> special;
  for (int64_t id = 0; id < tokenizer_.vocab_size(); ++id) {
    if (tokenizer_.is_special(static_cast<int32_t>(id)))
      special.push_back(tokenizer_.token_of(static_cast<int32_t>(id)));
  }
  chat_->add_special_tokens(special);
  find_turn_end();
}

void TextModel::read_end_ids() {
  for (const char* file : {"/generation_config.json", "/config.json"}) {
    const nlohmann::json config = read_optional(directory_ + file);
    const auto eos = config.find("eos_token_id");
    if (eos == config.end() || eos->is_null()) continue;
    for (const nlohmann::json& id : eos->is_array() ? *eos : nlohmann::json::array({*eos})) {
      if (!id.is_number_integer()) {
        fail_input(fmt::format("{}{}: eos_token_id is {}; expected a token's number or a list of them", directory_,
                               file, printable(eos->dump())));
      }
      end_ids_.insert(id.get<int32_t>());
    }
  }
  const nlohmann::json config = read_optional(directory_ + "/tokenizer_config.json");
  nlohmann::json token = config.value("eos_token", nlohmann::json());
  if (token.is_object()) token = token.value("content", nlohmann::json());
  if (!token.is_string()) return;
  const int32_t id = tokenizer_.id_of(token.get<std::string>());
  if (id >= 0) end_ids_.insert(id);
}

// What ends the answer of a small conversation; a template that refuses it leaves the other end tokens.
void TextModel::find_turn_end() {
  RenderedChat chat;
  try {
    chat = chat_->render({.messages = nlohmann::ordered_json::array(
                              {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "b"}}})});
  } catch (const Error&) {
    return;
  }
  if (chat.trained.empty()) return;
  const std::string_view answer = std::string_view(chat.text).substr(
      chat.trained.back().begin, chat.trained.back().end - chat.trained.back().begin);
  const std::vector<int32_t> ids = tokenizer_.encode(answer, false);
  if (!ids.empty() && tokenizer_.is_special(ids.back())) chat_end_ids_.insert(ids.back());
}

std::vector<int32_t> TextModel::encode_chat(const nlohmann::ordered_json& messages) const {
  if (!chat_) {
    fail_input(
        fmt::format("{} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); "
                    "give the prompt as plain text, or add the template",
                    directory_));
  }
  return tokenizer_.encode(chat_->render({.messages = messages, .add_generation_prompt = true}).text, false);
}

}  // namespace megatrain
