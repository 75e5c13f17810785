#include "megatrain/foreign/axolotl_data.h"

#include <algorithm>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/among.h"
#include "megatrain/base/error.h"
#include "megatrain/foreign/sentences.h"

namespace megatrain {
namespace {

using Entries = std::map<std::string, std::string>;

constexpr const char* kTypes = "alpaca, chat_template, completion or sharegpt";
constexpr const char* kLoaders[] = {"json", "text", "csv", "parquet", "arrow"};

// Dataset options about downloading or preprocessing, which have no effect on a local file.
constexpr const char* kIdleOfDatasets[] = {"name",          "revision",    "trust_remote_code", "preprocess_shards",
                                           "chat_template", "temperature", "logprobs_field",    "strict"};

// Options that would change what is trained, and what to do instead.
struct Refused {
  const char* name;
  const char* instead;
};
constexpr Refused kRefused[] = {
    {"message_field_training", "give the messages that are not trained \"weight\": 0"},
    {"message_field_training_detail", "a message is trained whole or, with \"weight\": 0, not at all"},
    {"drop_system_message", "take the system messages out of the data"},
    {"split_thinking", "write reasoning into a \"reasoning_content\" of the message"},
    {"input_transform", "write the data as it is to be read"},
    {"chat_template_jinja", "name the file as data.template, for all datasets"},
    {"skip", "take the first samples out of the file"},
    {"shards", "give data.max_samples, or a smaller file"},
    {"shards_idx", "give data.max_samples, or a smaller file"},
    {"field_human", "write the data as messages"},
    {"field_model", "write the data as messages"},
    {"input_format", "write the data as messages"},
};

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    if (!part.empty()) words.push_back(part);
  }
  return words;
}

bool is_json_name(const std::string& path) {
  return path.ends_with(".jsonl") || path.ends_with(".json") || path.ends_with(".ndjson");
}

// One element of the `datasets` list.
class Element {
 public:
  Element(const std::string& list, const ForeignItem& item) : list_(list), where_(item.where), left_(item.entries) {}

  AxolotlDatasets read() {
    const std::string path = take_path();
    const std::string type = take_type();
    Entries out;
    if (type == "alpaca")
      out = {{"format", "alpaca_prompt"}};
    else if (type == "chat_template" || type == "chat_template.default")
      out = conversation("messages", "role", "content");
    else if (type == "sharegpt" || type.starts_with("sharegpt."))
      out = conversation("conversations", "from", "value");
    else if (type == "completion" || type == "pretrain")
      out = text(type == "completion" ? "field" : "text_column");
    else
      fail(
          fmt::format("type is '{}', expected {}: other prompts are not written here; give the samples as messages "
                      "(type: chat_template)",
                      type, kTypes));
    check_rest();
    AxolotlDatasets datasets;
    for (const std::string& file : words_of(path)) {
      datasets.items.push_back(out);
      datasets.items.back()["path"] = file;
      if (!most_.empty()) datasets.items.back()["most"] = most_;
    }
    datasets.notes = std::move(notes_);
    datasets.warnings = std::move(warnings_);
    return datasets;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { fail_config(fmt::format("{}: {}: {}", where_, list_, what)); }

  std::string take(const std::string& name) {
    const auto found = left_.find(name);
    if (found == left_.end()) return "";
    std::string value = found->second;
    left_.erase(found);
    return value;
  }

  // `path: json` names a loader for data_files.
  std::string take_path() {
    std::string path = take("path");
    if (path.empty()) path = take("");
    const std::string files = take("data_files");
    if (!files.empty() && (path.empty() || among(kLoaders, path))) path = files;
    if (path.empty()) fail("a dataset has no path");
    std::string split = take("split");
    if (const std::string named = take("train_on_split"); split.empty()) split = named;
    most_ = first_part(split);
    if (const std::string part = split.substr(0, split.find('[')); !part.empty() && part != "train")
      warnings_.push_back(
          fmt::format("split: {} is not looked for: of {} is used what is for {} by its names; give the files of that "
                      "split as path",
                      part, path, list_ == "test_datasets" ? "evaluation" : "training"));
    check_loader(path);
    return path;
  }

  // ds_type names a loader; here the file name decides how a file is read.
  void check_loader(const std::string& path) const {
    const auto found = left_.find("ds_type");
    if (found == left_.end() || !is_json_name(path)) return;
    if (found->second != "json")
      fail(fmt::format("ds_type is '{}', and {} is JSON by its name; leave ds_type out, or rename the file",
                       found->second, path));
  }

  // "train[:500]" and "train[:20%]" select the beginning of a dataset; empty means all of it.
  std::string first_part(const std::string& split) const {
    const size_t open = split.find_first_of("[:%+");
    if (open == std::string::npos) return "";
    std::string part = split.substr(open);
    if (part.starts_with("[:") && part.ends_with(']')) {
      part = part.substr(2, part.size() - 3);
      const std::string digits = part.ends_with('%') ? part.substr(0, part.size() - 1) : part;
      if (!digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos) return part;
    }
    fail(fmt::format(
        "split is '{}', expected a beginning such as train[:500] or train[:20%]; write that part to a file", split));
  }

  std::string take_type() {
    const std::string type = take("type");
    if (!type.empty()) return type;
    const bool own =
        std::any_of(left_.begin(), left_.end(), [](const auto& e) { return e.first.starts_with("type."); });
    if (own)
      fail(
          fmt::format("type is a custom prompt, expected {}; write the samples with that prompt as {{\"text\"}} "
                      "(type: completion), or as messages",
                      kTypes));
    if (list_ == "pretraining_dataset") return "pretrain";
    fail(
        fmt::format("a dataset has no type, which is one that is tokenised already, expected {}; data.tokens reads raw "
                    "token ids",
                    kTypes));
  }

  Entries text(const char* column) {
    Entries out = {{"format", "text"}};
    if (const std::string name = take(column); !name.empty() && name != "text") out["columns.text"] = name;
    return out;
  }

  Entries conversation(const char* list, const char* role, const char* content) {
    std::string names[] = {take("field_messages"), take("message_property_mappings.role"),
                           take("message_property_mappings.content")};
    if (names[1].empty()) names[1] = take("message_field_role");
    if (names[2].empty()) names[2] = take("message_field_content");
    Entries out;
    const bool from = (names[1].empty() ? role : names[1]) == std::string("from");
    out["format"] = from ? "sharegpt" : "messages";
    if (!names[0].empty() && names[0] != list) out["columns.messages"] = names[0];
    if (!names[1].empty() && names[1] != (from ? "from" : "role")) out["columns.role"] = names[1];
    const std::string text = names[2].empty() ? content : names[2];
    if (text != (from ? "value" : "content")) out["columns.content"] = text;
    if (const std::string tools = take("field_tools"); !tools.empty() && tools != "tools") out["columns.tools"] = tools;
    if (const std::string system = take("field_system"); !system.empty()) out["columns.system"] = system;
    for (const char* const name : {"field_thinking", "template_thinking_key"}) {
      const std::string thinking = take(name);
      if (!thinking.empty() && thinking != "reasoning_content" && thinking != "reasoning" && thinking != "thinking")
        fail(fmt::format(
            "{} is '{}', expected reasoning_content, reasoning or thinking: a template sees reasoning under "
            "each of these names",
            name, thinking));
    }
    take_mappings();
    take_roles(out);
    take_trained();
    return out;
  }

  // Other message properties keep their names.
  void take_mappings() {
    constexpr const char* kPrefix = "message_property_mappings.";
    for (auto entry = left_.begin(); entry != left_.end();) {
      if (!entry->first.starts_with(kPrefix)) {
        ++entry;
        continue;
      }
      if (const std::string name = entry->first.substr(std::string(kPrefix).size()); name != entry->second)
        fail(
            fmt::format("message_property_mappings gives '{}' the name '{}'; only role and content may have another "
                        "name: rename it in the data",
                        entry->second, name));
      entry = left_.erase(entry);
    }
  }

  // Role words that megatrain knows need no tag. Only one unknown word per role is possible.
  void take_roles(Entries& out) {
    static const std::map<std::string, std::set<std::string>> kKnown = {
        {"user", {"human", "user"}},
        {"assistant", {"gpt", "assistant", "chatgpt", "bing", "bard", "model", "bot"}},
        {"system", {"system"}},
        {"tool", {"observation", "tool", "function_response", "tool_response"}}};
    for (const auto& [role, known] : kKnown) {
      const std::vector<std::string> words = words_of(take("roles." + role));
      const auto is_known = [&, &known = known](const std::string& word) { return known.count(word) != 0; };
      if (words.empty() || (words.size() == 1 && words.front() == role)) continue;
      if (std::all_of(words.begin(), words.end(), is_known)) {
        // sharegpt knows all of these words, so it is used with the columns of the messages format.
        if (out["format"] == "messages") {
          out.emplace("columns.messages", "messages");
          out.emplace("columns.role", "role");
          out.emplace("columns.content", "content");
          out["format"] = "sharegpt";
        }
      } else if (words.size() == 1) {
        out[role == "tool" ? "tags.observation" : "tags." + role] = words.front();
      } else {
        fail(fmt::format("roles.{} has {}, and at most one unknown name is supported; rename them in the data", role,
                         fmt::join(words, ", ")));
      }
    }
  }

  void take_trained() {
    if (left_.count("roles_to_train") && left_.at("roles_to_train").empty())
      fail(
          "roles_to_train is empty, so that only turns selected by a key of each message are trained; leave it out, "
          "which trains the assistant's");
    if (const std::string named = take("conversation"); !named.empty())
      warnings_.push_back(fmt::format(
          "conversation: {} is not supported: the model's own chat template is used; data.template names another",
          named));
    const std::vector<std::string> roles = words_of(take("roles_to_train"));
    const auto answers = [](const std::string& role) {
      return role == "assistant" || role == "gpt" || role == "model";
    };
    if (!std::all_of(roles.begin(), roles.end(), answers))
      fail(fmt::format("roles_to_train is {}, expected assistant; train_on_inputs: true trains everything",
                       fmt::join(roles, ", ")));
    for (const char* const name : {"train_on_eos", "train_on_eot"})
      if (const std::string when = take(name); !when.empty() && when != "turn")
        fail(fmt::format("{} is '{}', expected turn: the end of every assistant turn is trained", name, when));
    const std::string named = take("chat_template");
    if (named == "jinja" && !left_.count("chat_template_jinja"))
      fail(
          "chat_template is 'jinja', and no chat_template_jinja says which; leave it out of the dataset, and give the "
          "path of a file that holds the template as chat_template_jinja");
    if (!named.empty() && named != "tokenizer_default") notes_.push_back(kOwnTemplate);
  }

  void check_rest() {
    for (const char* const name : kIdleOfDatasets) left_.erase(name);
    left_.erase("ds_type");
    for (const Refused& each : kRefused) {
      const auto found = left_.find(each.name);
      if (found == left_.end()) continue;
      if (is_on({.text = found->second, .where = where_}))
        fail(fmt::format("{} is '{}', which is not supported; {}", each.name, found->second, each.instead));
      left_.erase(found);
    }
    if (left_.empty()) return;
    std::vector<std::string> names;
    for (const auto& [name, value] : left_) names.push_back(fmt::format("'{}'", name));
    fail(fmt::format("a dataset has {}, which {} not known here", fmt::join(names, ", "),
                     names.size() == 1 ? "is" : "are"));
  }

  const std::string& list_;
  const std::string& where_;
  Entries left_;
  std::string most_;
  std::vector<std::string> notes_, warnings_;
};

}  // namespace

AxolotlDatasets axolotl_datasets(const std::string& name, const Foreign& value, std::vector<std::string>& problems) {
  AxolotlDatasets all;
  std::vector<ForeignItem> items = value.items;
  if (items.empty()) items.push_back({value.entries, value.where});
  if (value.items.empty() && value.entries.empty()) items.front().entries = {{"path", value.text}};
  for (const ForeignItem& item : items) {
    try {
      AxolotlDatasets one = Element(name, item).read();
      all.items.insert(all.items.end(), one.items.begin(), one.items.end());
      all.warnings.insert(all.warnings.end(), one.warnings.begin(), one.warnings.end());
      for (std::string& note : one.notes)
        if (std::find(all.notes.begin(), all.notes.end(), note) == all.notes.end())
          all.notes.push_back(std::move(note));
    } catch (const Error& e) {
      problems.push_back(e.what());
    }
  }
  return all;
}

}  // namespace megatrain
