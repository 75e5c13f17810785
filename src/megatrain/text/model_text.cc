#include "megatrain/text/model_text.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/xxh3.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kMaxTextBytes = 256 * kMiB;

bool is_file(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);
}

json read_optional(const fs::path& path) { return is_file(path) ? read_json_file(path.string()) : json::object(); }

// Of every file that a chat template's text depends on.
std::string template_hash(const fs::path& directory, const std::string& template_file) {
  std::vector<fs::path> files = {directory / "tokenizer_config.json", directory / "special_tokens_map.json",
                                 template_file.empty() ? directory / "chat_template.jinja" : fs::path(template_file)};
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory / "additional_chat_templates", none))
    files.push_back(entry.path());
  std::sort(files.begin() + 3, files.end());
  Xxh3 hash;
  for (const fs::path& file : files) {
    const std::string text = is_file(file) ? read_text_file(file.string(), kMaxTextBytes) : "";
    const std::string head = fmt::format("{} {}\n", file.filename().string(), text.size());
    hash.update(head.data(), head.size());
    hash.update(text.data(), text.size());
  }
  return hash.digest();
}

// Each id once, in the order of being found. An id stands as a number or as a list of them.
void add_ids(const json& config, const char* key, std::vector<int32_t>& ids) {
  if (!config.contains(key)) return;
  const json& value = config.at(key);
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (id.is_number_integer() && std::find(ids.begin(), ids.end(), id.get<int32_t>()) == ids.end())
      ids.push_back(id.get<int32_t>());
  }
}

// The id of a token that a configuration names, as a text or as {"content": text}; -1: none.
int32_t named_id(const json& config, const char* key, const Tokenizer& tokenizer, const std::string& file) {
  if (!config.contains(key) || config.at(key).is_null()) return -1;
  const json& token = config.at(key).is_object() ? config.at(key).value("content", json()) : config.at(key);
  if (!token.is_string()) fail_input(fmt::format("{}: \"{}\" is no token's text; correct the file", file, key));
  const int32_t id = tokenizer.id_of(token.get<std::string>());
  if (id < 0)
    fail_input(fmt::format("{}: \"{}\" is {}, which tokenizer.json does not have; take both files from one model", file,
                           key, printable(token.get<std::string>())));
  return id;
}

}  // namespace

ModelText ModelText::load(const std::string& path, const std::string& template_file) {
  const bool whole = !is_file(path);
  const fs::path directory = whole ? fs::path(path) : fs::path(path).parent_path();
  const std::string file = whole ? (directory / "tokenizer.json").string() : path;
  if (!is_file(file)) {
    const bool sentencepiece = is_file(directory / "tokenizer.model");
    fail_input(fmt::format("{} has no tokenizer.json{}", path,
                           sentencepiece ? ", only a tokenizer.model; save it with transformers "
                                           "(AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)) to get one"
                                         : "; give data.tokenizer a directory that has one"));
  }
  const std::string text = read_text_file(file, kMaxTextBytes);
  ModelText model{.tokenizer = Tokenizer::from_json(text, file)};
  model.tokenizer_identity = xxh3_128(text.data(), text.size());

  const std::string config_file = (directory / "tokenizer_config.json").string();
  const json tokenizer_config = read_optional(config_file);
  const int32_t eos = named_id(tokenizer_config, "eos_token", model.tokenizer, config_file);
  if (eos >= 0) model.eos.push_back(eos);
  add_ids(read_optional(directory / "generation_config.json"), "eos_token_id", model.eos);
  const json config = read_optional(directory / "config.json");
  add_ids(config, "eos_token_id", model.eos);
  const int32_t padding = named_id(tokenizer_config, "pad_token", model.tokenizer, config_file);
  model.padding = padding >= 0 ? padding : model.eos.empty() ? 0 : model.eos.front();

  model.chat_template = ChatTemplate::find(directory.string(), template_file);
  if (model.chat_template) {
    std::vector<std::string> specials;
    for (int32_t id = 0; id < model.tokenizer.vocab_size(); ++id)
      if (model.tokenizer.is_special(id)) specials.push_back(model.tokenizer.token_of(id));
    model.chat_template->add_special_tokens(specials);
    model.template_identity = template_hash(directory, template_file);
  }
  return model;
}

}  // namespace megatrain
