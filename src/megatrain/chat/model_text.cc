#include "megatrain/chat/model_text.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/shell_word.h"
#include "megatrain/base/units.h"
#include "megatrain/chat/builtin_templates.h"
#include "megatrain/chat/compare_templates.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/replace.h"
#include "megatrain/io/xxh3.h"
#include "megatrain/tokenizer/config_tokens.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kMaxTextBytes = 256 * kMiB;

bool is_file(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);
}

json read_optional(const fs::path& path) {
  return can_read(path.string()) ? read_json_file(path.string()) : json::object();
}

// A hash of every file that the rendered text depends on, and of the end tokens, which the loss mask depends on.
std::string template_hash(const fs::path& directory, const std::string& chosen, const std::vector<std::string>& ends) {
  std::vector<fs::path> files = {directory / "tokenizer_config.json", directory / "special_tokens_map.json",
                                 chosen.empty() ? directory / "chat_template.jinja" : fs::path(chosen)};
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory / "additional_chat_templates", none))
    files.push_back(entry.path());
  std::sort(files.begin() + 3, files.end());
  Xxh3 hash;
  for (const fs::path& file : files) {
    const bool is_chosen = !chosen.empty() && file == fs::path(chosen);
    const std::string text =
        is_chosen ? read_template(chosen) : read_text_if_there(file.string(), kMaxTextBytes).value_or("");
    const std::string head = fmt::format("{} {}\n", file.filename().string(), text.size());
    hash.update(head.data(), head.size());
    hash.update(text.data(), text.size());
  }
  for (const std::string& end : ends) hash.update(end.data(), end.size() + 1);
  return hash.digest();
}

// The id of a token that a configuration names, as a text or as {"content": text}. -1 if it names none, or names one
// that the tokenizer lacks; the latter is an error if it is `needed`.
int32_t named_id(const json& config, const char* key, const Tokenizer& tokenizer, const std::string& file,
                 bool needed) {
  if (!config.contains(key) || config.at(key).is_null()) return -1;
  const json& token = config.at(key).is_object() ? config.at(key).value("content", json()) : config.at(key);
  if (!token.is_string()) fail_input(fmt::format("{}: \"{}\" is not a token; correct the file", file, key));
  const int32_t id = tokenizer.id_of(token.get<std::string>());
  if (id < 0 && needed)
    fail_input(fmt::format("{}: \"{}\" is {}, which tokenizer.json does not have; take both files from one model", file,
                           key, printable(token.get<std::string>())));
  return id;
}

// A hash of tokenizer.json and of the changes that the files beside it make to the tokens, if any.
std::string identity_of(const std::string& text, const Tokenizer& tokenizer) {
  Xxh3 hash;
  hash.update(text.data(), text.size());
  for (const AddedToken& token : tokenizer.tokens_beyond_file()) {
    const std::string line = fmt::format("\n{} {} {} {} {} {} {}", token.id, token.single_word, token.left_strip,
                                         token.right_strip, token.normalized, token.special, token.content);
    hash.update(line.data(), line.size());
  }
  return hash.digest();
}

// Ids follow the order of the tokens, as in transformers, even if the file says otherwise.
void warn_of_other_ids(const std::vector<ConfigToken>& tokens, const Tokenizer& tokenizer, const std::string& file) {
  for (const auto& [token, priority] : tokens) {
    const int32_t id = tokenizer.id_of(token.content);
    if (token.id < 0 || token.id == id || priority != ConfigToken::Priority::always) continue;
    log_warn(fmt::format("{}: added_tokens_decoder gives {} the id {}; it gets {}, as in transformers", file,
                         printable(token.content), token.id, id));
  }
}

}  // namespace

ModelText ModelText::load(const std::string& path, const std::string& chosen, const std::string& tokenizer_key,
                          const std::string& template_key) {
  const bool whole = !is_file(path);
  const fs::path directory = whole ? fs::path(path) : fs::path(path).parent_path();
  const std::string file = whole ? (directory / "tokenizer.json").string() : path;
  if (!can_read(file)) {
    if (is_file(directory / "tokenizer.model"))
      fail_input(
          fmt::format("{} has no tokenizer.json, only a tokenizer.model; convert it with transformers: python3 -c "
                      "'import sys; from transformers import AutoTokenizer as T; "
                      "T.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])' {}",
                      path, shell_word(path)));
    fail_input(fmt::format(
        "{} has no tokenizer.json, which is needed to tokenize text; copy it from the model this one was made from{}",
        path,
        tokenizer_key.empty() ? ", with the tokenizer_config.json beside it"
                              : fmt::format(", or give {} a directory that has one", tokenizer_key)));
  }
  const std::string text = read_text_file(file, kMaxTextBytes);
  const TokenizerConfigFiles files = TokenizerConfigFiles::read(directory.string());
  const json config = files.named();
  const std::string config_file = (directory / "tokenizer_config.json").string();
  const std::vector<ConfigToken> more = config_tokens(files);
  ModelText model{.path = path, .tokenizer = Tokenizer::from_json(text, file, more)};
  model.tokenizer_identity = identity_of(text, model.tokenizer);
  warn_of_other_ids(more, model.tokenizer, config_file);
  model.eos = named_id(config, "eos_token", model.tokenizer, config_file, true);
  model.read_end_ids(directory.string());
  if (model.eos < 0 && !model.end_ids.empty()) model.eos = *model.end_ids.begin();
  const int32_t padding = named_id(config, "pad_token", model.tokenizer, config_file, false);
  model.padding = padding >= 0 ? padding : std::max(model.eos, 0);

  model.chat_end_ids = model.end_ids;
  model.choose_template(directory.string(), chosen, template_key);
  return model;
}

void ModelText::add_tokens(ChatTemplate& to) const {
  std::vector<std::string> specials;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.is_special(id)) specials.push_back(tokenizer.token_of(id));
  to.add_special_tokens(specials);
  to.add_end_tokens(end_tokens());
}

std::vector<std::string> ModelText::end_tokens() const {
  std::vector<std::string> ends;
  for (const int32_t id : end_ids)
    if (id >= 0 && id < tokenizer.vocab_size()) ends.push_back(tokenizer.token_of(id));
  return ends;
}

void ModelText::choose_template(const std::string& directory, std::string chosen, const std::string& template_key) {
  chat_template = ChatTemplate::find(directory, chosen);
  if (!chat_template) return;
  add_tokens(*chat_template);
  if (!chosen.empty() && builtin_template(chosen)) {
    std::optional<ChatTemplate> own = ChatTemplate::find(directory);
    if (own) add_tokens(*own);
    const auto difference = own ? find_difference(*chat_template, *own) : std::nullopt;
    if (own && !difference) {
      chat_template = std::move(own);
      chosen.clear();
    } else {
      check_template_tokens(*chat_template, chosen, tokenizer, template_key);
    }
    if (difference)
      log_warn(
          fmt::format("{} is {}, which renders a conversation differently from the model's own chat template; {} is "
                      "used. {} writes {}; the model's own {}. Leave {} out to use the model's own",
                      template_key, chosen, chosen, chosen, difference->first, difference->second, template_key));
  }
  if (!chosen.empty()) replaced_template = chat_template->sources().front().second;
  template_identity = template_hash(directory, chosen, end_tokens());
  find_turn_end();
}

void ModelText::read_end_ids(const std::string& directory) {
  if (eos >= 0) end_ids.insert(eos);
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string file = (fs::path(directory) / name).string();
    json config = read_optional(file);
    if (config.is_object() && !config.contains("eos_token_id")) config = config.value("text_config", json());
    if (!config.is_object() || !config.contains("eos_token_id") || config.at("eos_token_id").is_null()) continue;
    const json& ids = config.at("eos_token_id");
    for (const json& id : ids.is_array() ? ids : json::array({ids})) {
      if (!id.is_number_integer()) {
        fail_input(
            fmt::format("{}: eos_token_id is {}; expected a token id or a list of ids", file, printable(ids.dump())));
      }
      end_ids.insert(id.get<int32_t>());
    }
  }
}

// Renders a small conversation to learn what ends an answer. If the template refuses it, the other end tokens remain.
void ModelText::find_turn_end() {
  RenderedChat chat;
  try {
    chat =
        chat_template->render({.messages = nlohmann::ordered_json::array(
                                   {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "b"}}})});
  } catch (const Error&) {
    return;
  }
  if (chat.trained.empty()) return;
  const auto [begin, end, message] = chat.trained.back();
  const std::vector<int32_t> ids = tokenizer.encode(std::string_view(chat.text).substr(begin, end - begin), false);
  if (!ids.empty() && tokenizer.is_special(ids.back())) chat_end_ids.insert(ids.back());
}

std::vector<int32_t> ModelText::encode_chat(const nlohmann::ordered_json& messages) const {
  if (!chat_template) {
    fail_input(
        fmt::format("{} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); "
                    "give the prompt as plain text, or add the template",
                    path));
  }
  return tokenizer.encode(chat_template->render({.messages = messages, .add_generation_prompt = true}).text, false);
}

}  // namespace megatrain
