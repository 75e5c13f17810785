#include "megatrain/dataset/settle_form.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/shell_word.h"
#include "megatrain/dataset/preferences.h"
#include "megatrain/dataset/sample_json.h"
#include "megatrain/io/file.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

// Number of samples examined, for one whose form is known and for their columns.
constexpr int64_t kSamples = 1000;
constexpr int64_t kBytes = 4 * kMiB;  // bytes of them examined for columns

// Finds columns that hold text and are not read, each with the first place where it does.
class UnusedColumns {
 public:
  UnusedColumns(const TextCoder& model, const TokenizeOptions& options) : model_(model), options_(options) {}

  void look_at(const Json& object, const SampleForm& form, const std::string& where) {
    if (!object.is_object()) return;
    for (const auto& [key, value] : object.items()) {
      if (!carries_text(value) || uses(key, object, form)) continue;
      const bool known =
          std::any_of(places_.begin(), places_.end(), [&key = key](const auto& each) { return each.first == key; });
      if (!known && places_.size() < kMost) places_.emplace_back(key, where);
    }
  }
  void warn(const Dataset& dataset) const {
    if (places_.empty()) return;
    std::vector<std::string> texts;
    for (const auto& [key, where] : places_) texts.push_back(fmt::format("{} ({})", printable(key), where));
    log_warn(
        fmt::format("the dataset {} has text in columns that are not used: {}; name those to use in {}, or remove them",
                    dataset.name, fmt::join(texts, ", "), dataset.columns.named_in));
  }

 private:
  bool uses(const std::string& column, const Json& object, const SampleForm& form) {
    if (!form.reads(column, model_.chat_template != nullptr) || form.leaves_system(column, object)) return false;
    return model_.chat_template == nullptr || !form.is_tools(column) || writes_tools(object, form);
  }

  // Decided by the first sample that has tools, rendered with and without them.
  bool writes_tools(const Json& object, const SampleForm& form) {
    if (writes_tools_) return *writes_tools_;
    try {
      Sample sample = form.read(object, true);
      if (sample.tools.is_null()) return true;
      ChatInputs inputs{.messages = std::move(sample.messages),
                        .tools = std::move(sample.tools),
                        .variables = options_.variables,
                        .now = options_.date};
      const std::string text = model_.chat_template->render(inputs).text;
      inputs.tools = nullptr;
      writes_tools_ = model_.chat_template->render(inputs).text != text;
      return *writes_tools_;
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_input) throw;
      return true;  // the sample is bad; the encoder reports it
    }
  }

  static constexpr size_t kMost = 20;
  const TextCoder& model_;
  const TokenizeOptions& options_;
  std::optional<bool> writes_tools_;
  std::vector<std::pair<std::string, std::string>> places_;
};

// What to change in a sample that has messages in a way that no form has; empty if it has none.
std::string meant_messages(const Json& object, const std::string& dataset) {
  if (!object.is_object()) return "";
  for (const char* key : {"messages", "conversations"}) {
    if (object.contains(key) && !object[key].is_array())
      return fmt::format(
          "{} is {}; expected a list of messages, such as [{{\"role\": \"user\", \"content\": \"…\"}}, …].", key,
          kind_of(object[key]));
  }
  const bool message = object.contains("role") && object.contains("content");
  if (!message && !(object.contains("from") && object.contains("value"))) return "";
  return fmt::format(
      "a list of messages stands alone; expected an object that holds it as {0}: jq -c '{{{0}: .}}' {1} > "
      "better.jsonl.",
      message ? "messages" : "conversations", shell_word(dataset));
}

}  // namespace

std::optional<SampleForm> settle_form(const Dataset& dataset, std::vector<SampleFile> files, const BlockLimits& limits,
                                      const TextCoder& model, const TokenizeOptions& options) {
  std::erase_if(files, [](const SampleFile& file) { return !file.json; });
  if (files.empty()) return std::nullopt;
  SampleBlocks blocks(files, limits);
  SampleBlock block;
  std::optional<SampleForm> form;
  UnusedColumns unused(model, options);
  std::string first;      // description of the first sample
  std::string other;      // message about a sample whose form is meant, but cannot be read
  std::string malformed;  // message about the first line that is no JSON
  int64_t bytes = 0;      // examined for columns
  for (int64_t seen = 0; seen < kSamples && bytes < kBytes && other.empty() && blocks.next(block);) {
    for (const RawSample& raw : block.samples) {
      if (++seen > kSamples || bytes >= kBytes) break;
      const std::string where = fmt::format("{}:{}", files[static_cast<size_t>(raw.file)].path, raw.line);
      try {
        const Json object = parse_sample_json(block.good_text(raw));
        if (!form) form = SampleForm::settle(dataset.form, dataset.columns, object);
        if (form) {
          if (form->misfit(object, model.chat_template != nullptr).empty()) unused.look_at(object, *form, where);
          bytes += static_cast<int64_t>(raw.end - raw.begin);
        } else if (const std::string what = preference_sentence(object); !what.empty()) {
          other = where + ": " + what + ".";
          break;
        } else if (first.empty()) {
          if (const std::string meant = meant_messages(object, dataset.name); !meant.empty()) {
            other = where + ": " + meant;
            break;
          }
          first = object.is_object() ? fmt::format("{} has the keys {}", where, keys_of(object))
                                     : fmt::format("{} is {}", where, kind_of(object));
        }
      } catch (const Error& error) {
        if (error.code() != ExitCode::bad_input) throw;
        if (malformed.empty()) malformed = fmt::format("{}: {}.", where, error.what());
      }
    }
  }
  if (!other.empty()) fail_input(other);
  unused.warn(dataset);
  if (form) return form;
  if (first.empty() && !malformed.empty()) fail_input(malformed);
  if (first.empty()) return SampleForm::settle(DatasetForm::text, {}, Json::object());
  fail_input(
      fmt::format("cannot detect the format of {}: {}; expected {}. For other columns, name them, as in data.train: "
                  "[{{path: {}, columns: {{prompt: NAME, response: NAME}}}}], or columns: {{text: NAME}}.",
                  dataset.name, first, known_forms(), dataset.name));
}

}  // namespace megatrain
