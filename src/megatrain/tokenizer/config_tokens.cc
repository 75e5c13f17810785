#include "megatrain/tokenizer/config_tokens.h"

#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/replace.h"

namespace megatrain {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kEnd = "eos_token";
constexpr const char* kNamed[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};
constexpr const char* kLists[] = {"additional_special_tokens", "extra_special_tokens"};

[[noreturn]] void refuse(const std::string& directory, const char* file, const std::string& what) {
  fail_input(fmt::format("{}/{}: {}; correct the file or download it again.", directory, file, what));
}

bool flag(const Json& object, const char* key, bool otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

// A token written as {"content", flags} or, if `special` is set, as its text alone. Empty if it is neither.
std::optional<AddedToken> token_of(const Json& value, bool special) {
  if (value.is_string() && special)
    return AddedToken{.content = value.get<std::string>(), .normalized = false, .special = true};
  if (!value.is_object()) return std::nullopt;
  const auto content = value.find("content");
  if (content == value.end() || !content->is_string()) return std::nullopt;
  const bool is_special = special || flag(value, "special", false);
  return AddedToken{.content = content->get<std::string>(),
                    .single_word = flag(value, "single_word", false),
                    .left_strip = flag(value, "lstrip", false),
                    .right_strip = flag(value, "rstrip", false),
                    .normalized = flag(value, "normalized", !is_special),
                    .special = is_special};
}

bool has_decoder(const Json& config) {
  return config.contains("added_tokens_decoder") && !config["added_tokens_decoder"].is_null();
}

void add_decoder(const TokenizerConfigFiles& files, std::map<int64_t, AddedToken>& declared) {
  constexpr const char* kFile = "tokenizer_config.json";
  const Json& decoder = files.config["added_tokens_decoder"];
  if (!decoder.is_object()) refuse(files.directory, kFile, "\"added_tokens_decoder\" has to be an object of tokens");
  for (const auto& [index, value] : decoder.items()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(index.data(), index.data() + index.size(), id);
    const auto token = token_of(value, false);
    if (error != std::errc() || end != index.data() + index.size() || id < 0 || id > INT32_MAX || !token) {
      refuse(files.directory, kFile,
             fmt::format("\"added_tokens_decoder\" has {} under {}; expected a token with \"content\" under its id",
                         printable(value.dump()), printable(index)));
    }
    declared[id] = *token;
  }
}

// Reads a map from token text to id. Tokens are special if another file names them as special.
void add_legacy(const TokenizerConfigFiles& files, const std::set<std::string>& special,
                std::map<int64_t, AddedToken>& declared) {
  for (const auto& [text, id] : files.added_tokens.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
      refuse(files.directory, "added_tokens.json",
             fmt::format("{} has the id {}; expected a whole number", printable(text), printable(id.dump())));
    }
    const bool is_special = special.contains(text);
    declared[id.get<int64_t>()] = {.content = text, .normalized = !is_special, .special = is_special};
  }
}

Json read_object(const std::filesystem::path& path) {
  if (!can_read(path.string())) return Json::object();
  Json json = read_json_file(path.string());
  if (!json.is_object()) fail_input(fmt::format("{} has to be a JSON object.", path.string()));
  return json;
}

}  // namespace

TokenizerConfigFiles TokenizerConfigFiles::read(const std::string& directory) {
  const std::filesystem::path folder(directory);
  Json config = read_object(folder / "tokenizer_config.json");
  if (flag(config, "split_special_tokens", false))
    refuse(directory, "tokenizer_config.json",
           "\"split_special_tokens\" is true, which splits the tokens of chat templates and is not supported");
  return {.config = std::move(config),
          .special_tokens_map = read_object(folder / "special_tokens_map.json"),
          .added_tokens = read_object(folder / "added_tokens.json"),
          .directory = directory};
}

nlohmann::json TokenizerConfigFiles::named() const {
  Json all = config;
  if (!has_decoder(config)) all.update(special_tokens_map);
  return all;
}

std::vector<ConfigToken> config_tokens(const TokenizerConfigFiles& files) {
  using Priority = ConfigToken::Priority;
  const Json all = files.named();
  std::vector<ConfigToken> named;
  const auto add = [&](const Json& value, Priority priority) {
    if (auto token = token_of(value, true)) named.push_back({.token = std::move(*token), .priority = priority});
  };
  for (const char* const key : kNamed) {
    // An end token that no file knows would be trained as an id that the model never had. It is not added, so that it
    // is refused later.
    if (all.contains(key)) add(all[key], key == kEnd ? Priority::if_known : Priority::if_not_added);
  }
  for (const char* const key : kLists) {
    if (!all.contains(key) || !all[key].is_structured()) continue;
    for (const Json& value : all[key]) add(value, Priority::if_not_added);
  }
  std::map<int64_t, AddedToken> declared;
  const bool decoder = has_decoder(files.config);
  std::set<std::string> texts;
  for (const ConfigToken& each : named) texts.insert(each.token.content);
  if (decoder) {
    add_decoder(files, declared);
  } else {
    add_legacy(files, texts, declared);
  }
  std::vector<ConfigToken> tokens;
  for (auto& [id, token] : declared) {
    token.id = static_cast<int32_t>(id);
    token.special = token.special || texts.contains(token.content);
    tokens.push_back({.token = std::move(token), .priority = decoder ? Priority::always : Priority::if_id_is_free});
  }
  tokens.insert(tokens.end(), named.begin(), named.end());
  return tokens;
}

}  // namespace megatrain
