#include "megatrain/text/dataset/settle_form.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/io/file.h"
#include "megatrain/text/dataset/sample_json.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kSamples = 1000;    // so many are looked at, for one whose form is known and for their columns
constexpr int64_t kBytes = 4 * kMiB;  // so much of them is looked at for columns

// Names columns that hold text and are not read, each with the first place where it does.
class UnusedColumns {
 public:
  void look_at(const Json& object, const SampleForm& form, bool has_template, const std::string& where) {
    if (!object.is_object()) return;
    for (const auto& [key, value] : object.items()) {
      if (form.reads(key, has_template) || !carries_text(value)) continue;
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
        fmt::format("the dataset {} has text in columns that are not used: {}; name the ones that are meant in "
                    "{}, or leave them out",
                    dataset.name, fmt::join(texts, ", "), dataset.columns.named_in));
  }

 private:
  static constexpr size_t kMost = 20;
  std::vector<std::pair<std::string, std::string>> places_;
};

// What of a sample is pictures, film or sound, which training on its text alone would pass over; empty: nothing.
std::string media_sentence(const Json& object, const SampleForm& form, bool has_template) {
  for (const char* const key : {"images", "videos", "audios"}) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (found == object.end() || form.reads(key, has_template) || !carries_text(*found)) continue;
    return fmt::format(
        "it has \"{}\", and only text is trained on; leave such samples out, or where their text is enough, that "
        "column",
        key);
  }
  return "";
}

}  // namespace

std::optional<SampleForm> settle_form(const Dataset& dataset, std::vector<SampleFile> files, const BlockLimits& limits,
                                      bool has_template) {
  std::erase_if(files, [](const SampleFile& file) { return !file.json; });
  if (files.empty()) return std::nullopt;
  SampleBlocks blocks(files, limits);
  SampleBlock block;
  std::optional<SampleForm> form;
  UnusedColumns unused;
  std::string first;  // what the first one has
  std::string other;  // the first one that is of preferences, or of more than text
  int64_t bytes = 0;  // looked at for columns
  for (int64_t seen = 0; seen < kSamples && bytes < kBytes && other.empty() && blocks.next(block);) {
    for (const RawSample& raw : block.samples) {
      if (++seen > kSamples || bytes >= kBytes) break;
      const std::string where = fmt::format("{}:{}", files[static_cast<size_t>(raw.file)].path, raw.line);
      try {
        const Json object = parse_sample_json(block.good_text(raw));
        if (!form && dataset.form == DatasetForm::detect) {
          if (const std::string what = preference_sentence(object); !what.empty()) other = where + ": " + what + ".";
        }
        if (!other.empty()) break;
        if (!form) form = SampleForm::settle(dataset.form, dataset.columns, object);
        if (form) {
          if (const std::string what = media_sentence(object, *form, has_template); !what.empty()) {
            other = where + ": " + what + ".";
            break;
          }
          unused.look_at(object, *form, has_template, where);
          bytes += static_cast<int64_t>(raw.end - raw.begin);
        } else if (first.empty()) {
          first = object.is_object() ? fmt::format("{} has the keys {}", where, keys_of(object))
                                     : fmt::format("{} is {}", where, kind_of(object));
        }
      } catch (const Error& error) {
        if (error.code() != ExitCode::bad_input) throw;
        if (first.empty()) first = fmt::format("{}: {}", where, error.what());
      }
    }
  }
  if (!other.empty()) fail_input(other);
  unused.warn(dataset);
  if (form) return form;
  if (first.empty()) return SampleForm::settle(DatasetForm::text, {}, Json::object());
  fail_input(
      fmt::format("the form of the dataset {} cannot be told: {}; expected {}, or give the form and the names of "
                  "the columns.",
                  dataset.name, first, known_forms()));
}

}  // namespace megatrain
