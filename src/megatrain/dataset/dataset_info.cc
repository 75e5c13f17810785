#include "megatrain/dataset/dataset_info.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/shell_word.h"
#include "megatrain/dataset/file_kind.h"
#include "megatrain/dataset/shards.h"
#include "megatrain/dataset/splits.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"

namespace megatrain {
namespace {

struct Field {
  std::string_view key;
  std::string DatasetColumns::*column;
};
constexpr Field kColumns[] = {{"prompt", &DatasetColumns::prompt},     {"query", &DatasetColumns::query},
                              {"response", &DatasetColumns::response}, {"history", &DatasetColumns::history},
                              {"messages", &DatasetColumns::messages}, {"system", &DatasetColumns::system},
                              {"tools", &DatasetColumns::tools}};
constexpr Field kTags[] = {{"role_tag", &DatasetColumns::role},
                           {"content_tag", &DatasetColumns::content},
                           {"user_tag", &DatasetColumns::user_tag},
                           {"assistant_tag", &DatasetColumns::assistant_tag},
                           {"system_tag", &DatasetColumns::system_tag},
                           {"observation_tag", &DatasetColumns::observation_tag},
                           {"function_tag", &DatasetColumns::function_tag}};

struct Refusal {
  std::string_view key;
  const char* why;
};
constexpr Refusal kRefused[] = {
    {"ms_hub_url", "names a dataset on a hub; download it and give its files as \"file_name\""},
    {"om_hub_url", "names a dataset on a hub; download it and give its files as \"file_name\""},
    {"cloud_file_name", "names a remote file; download it and give it as \"file_name\""},
    {"script_url", "names a program that loads the dataset; write the dataset to a file and give it as \"file_name\""},
    {"num_samples", "asks for a random part of the dataset; write that part to a file"},
    {"chosen", "is a column of preferences; preference training is not supported"},
    {"rejected", "is a column of preferences; preference training is not supported"},
    {"kto_tag", "is a column of preferences; preference training is not supported"},
    {"images", "is a column of images; only text is supported"},
    {"videos", "is a column of videos; only text is supported"},
    {"audios", "is a column of audio; only text is supported"},
};

// One entry of the file, for errors.
struct Entry {
  const std::string& path;
  const std::string& name;
  [[noreturn]] void refuse(const std::string& what) const {
    fail_input(fmt::format("{}: the dataset {}: {}.", path, printable(name), what));
  }
};

// Supported keys of an entry. `subset` and `folder` concern hubs; a local file needs neither.
constexpr std::string_view kEntryKeys[] = {"file_name", "formatting", "columns", "tags", "ranking", "split"};

bool is_set(const nlohmann::json& value) { return !value.is_null() && value != false && value != ""; }

void check_refused(const Entry& entry, const std::string& key, const nlohmann::json& value) {
  if (!is_set(value)) return;
  if (key == "hf_hub_url" && value.is_string()) {
    const std::string name = value.get<std::string>();
    entry.refuse(
        fmt::format("\"hf_hub_url\" names a dataset on a hub; download it: hf download {} --repo-type dataset "
                    "--local-dir {}, and give its files as \"file_name\"",
                    shell_word(name), shell_word("data/" + name.substr(name.rfind('/') + 1))));
  }
  for (const Refusal& each : kRefused) {
    if (key == each.key) entry.refuse(fmt::format("\"{}\" {}", key, each.why));
  }
}

void read_fields(const Entry& entry, const nlohmann::json& object, const char* group, std::span<const Field> fields,
                 DatasetColumns& columns) {
  if (object.is_null()) return;
  if (!object.is_object()) entry.refuse(fmt::format("\"{}\" has to be an object of names", group));
  for (const auto& [key, value] : object.items()) {
    check_refused(entry, key, value);
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&key = key](const Field& each) { return key == each.key; });
    if (field == fields.end()) entry.refuse(fmt::format("\"{}\" has the unknown key {}", group, printable(key)));
    if (value.is_null()) continue;
    if (!value.is_string()) entry.refuse(fmt::format("\"{}\" of \"{}\" has to be a name", key, group));
    columns.*(field->column) = value.get<std::string>();
  }
}

DatasetForm read_form(const Entry& entry, const nlohmann::json& value) {
  if (value.is_null() || value == "alpaca") return DatasetForm::alpaca;
  if (value == "sharegpt") return DatasetForm::sharegpt;
  if (value == "openai") return DatasetForm::messages;
  entry.refuse(fmt::format("\"formatting\" is {}; expected alpaca, sharegpt or openai", value.dump()));
}

nlohmann::json member(const nlohmann::json& object, const char* key) {
  return object.contains(key) ? object[key] : nlohmann::json();
}

// Disables columns that LLaMA-Factory does not read: if the entry has "columns", the optional ones not named there;
// otherwise those that have no default.
void close_optional(DatasetColumns& columns, bool named) {
  for (const Field& field : kColumns) {
    const bool optional =
        field.key == "system" || field.key == "tools" || field.key == "history" || (named && field.key == "query");
    if (optional && (columns.*(field.column)).empty()) columns.*(field.column) = kNoColumn;
  }
}

// Columns that name a prompt and no response describe a pretraining set: the prompt is the text. LLaMA-Factory's loader
// puts the lines of a text file into a single column "text".
void settle_text(const Entry& entry, bool named, Dataset& dataset) {
  const auto has_rows = [](const std::string& file) { return holds_rows(file); };
  DatasetColumns& columns = dataset.columns;
  if (named && dataset.form == DatasetForm::alpaca && !columns.prompt.empty() && columns.response.empty()) {
    dataset.form = DatasetForm::text;
    columns.text = std::exchange(columns.prompt, "");
  }
  if (std::all_of(dataset.files.begin(), dataset.files.end(), has_rows)) return;
  if (dataset.form != DatasetForm::text || columns.text != "text") {
    entry.refuse(
        fmt::format("{} is a text file, whose lines are its only column; give \"columns\": {{\"prompt\": \"text\"}}, "
                    "or a JSON file",
                    *std::find_if_not(dataset.files.begin(), dataset.files.end(), has_rows)));
  }
  dataset.text_lines = true;
}

// LLaMA-Factory trains on every file of a folder, whatever its name.
void note_held_out(const std::string& folder, Dataset& dataset) {
  for (const Split& split : splits_of(folder, dataset.files)) {
    if (split.name != "train") dataset.held_out.insert(dataset.held_out.end(), split.files.begin(), split.files.end());
  }
}

}  // namespace

std::optional<Dataset> find_dataset(const std::string& name, const std::string& info_directory,
                                    std::vector<std::string>& known) {
  const std::string path = info_directory + "/dataset_info.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const nlohmann::json info = read_json_file(path);
  if (!info.is_object()) fail_input(fmt::format("{} has to be an object that maps names to datasets.", path));
  if (!info.contains(name)) {
    for (const auto& [key, value] : info.items()) known.push_back(key);
    return std::nullopt;
  }
  const Entry entry{path, name};
  const nlohmann::json& json = info[name];
  if (!json.is_object()) entry.refuse("has to be an object with \"file_name\"");
  for (const auto& [key, value] : json.items()) {
    check_refused(entry, key, value);
    const bool known = std::find(std::begin(kEntryKeys), std::end(kEntryKeys), key) != std::end(kEntryKeys);
    if (!known && is_set(value)) entry.refuse(fmt::format("has the unknown key {}", printable(key)));
  }
  if (is_set(member(json, "ranking")))
    entry.refuse("\"ranking\" makes it a preference dataset; preference training is not supported");
  const nlohmann::json split = member(json, "split");
  if (!split.is_null() && split != "train") entry.refuse("\"split\" names a part of it; write that part to a file");
  const nlohmann::json file = member(json, "file_name");
  if (!file.is_string() || file == "")
    entry.refuse("needs a \"file_name\": a file or folder next to dataset_info.json");

  Dataset dataset{.name = name, .form = read_form(entry, member(json, "formatting"))};
  const nlohmann::json columns = member(json, "columns");
  read_fields(entry, columns, "columns", kColumns, dataset.columns);
  read_fields(entry, member(json, "tags"), "tags", kTags, dataset.columns);
  close_optional(dataset.columns, columns.is_object());
  dataset.columns.named_in = "\"columns\" of " + path;
  const std::string files = (std::filesystem::path(info_directory) / file.get<std::string>()).string();
  add_files(files, dataset);
  if (std::filesystem::is_directory(files, error)) {
    note_held_out(files, dataset);
    check_shards(files, dataset.files);
  }
  settle_text(entry, columns.is_object(), dataset);
  return dataset;
}

}  // namespace megatrain
