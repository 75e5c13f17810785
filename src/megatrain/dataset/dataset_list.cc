#include "megatrain/dataset/dataset_list.h"

#include <charconv>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"
#include "megatrain/io/yaml.h"

namespace megatrain {
namespace {

constexpr int64_t kMaxListBytes = 4 * kMiB;

template <class Number>
Number number_of(const std::string& where, const std::string& key, const std::string& text, Number least) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least))
    fail_input(fmt::format("{}: {} is '{}', expected a number of at least {}", where, key, text, least));
  return value;
}

DatasetForm form_of(const std::string& where, const std::string& converter) {
  if (converter == "alpaca") return DatasetForm::alpaca;
  if (converter == "sharegpt") return DatasetForm::sharegpt;
  if (converter == "pair")
    fail_input(
        fmt::format("{}: converter: pair is for preferences (DPO); preference training is not supported.", where));
  fail_input(
      fmt::format("{}: converter is '{}', expected alpaca or sharegpt; leave it out for messages", where, converter));
}

Dataset open_entry(const std::string& list, const std::string& name, const YAML::Node& entry, DatasetUse use) {
  const std::string place = fmt::format("{}:{}", list, entry.Mark().line + 1);
  if (!entry.IsMap()) fail_input(fmt::format("{}: the dataset {} has to have a path", place, printable(name)));
  Dataset dataset;
  DatasetForm form = DatasetForm::detect;
  double weight = 1;
  int64_t most = 0;
  for (const auto& field : entry) {
    const std::string key = field.first.IsScalar() ? field.first.Scalar() : "?";
    const std::string where = fmt::format("{}:{}", list, field.first.Mark().line + 1);
    if (field.second.IsNull()) continue;
    if (!field.second.IsScalar()) fail_input(fmt::format("{}: {} has to be one value", where, printable(key)));
    const std::string value = field.second.Scalar();
    if (key == "path") {
      dataset.name = value;
    } else if (key == "converter") {
      form = form_of(where, value);
    } else if (key == "size") {
      most = number_of<int64_t>(where, key, value, 1);
    } else if (key == "weight") {
      weight = number_of<double>(where, key, value, 1e-6);
    } else if (key == "split") {
      if (value != "train")
        fail_input(fmt::format("{}: split is {}, but only train is supported; give the files of that split as path",
                               where, printable(value)));
    } else if (key != "source" && key != "streaming") {
      fail_input(
          fmt::format("{}: the dataset {} has the unknown key {}; expected path, converter, size, weight, source, "
                      "split or streaming",
                      where, printable(name), printable(key)));
    }
  }
  if (dataset.name.empty()) fail_input(fmt::format("{}: the dataset {} has no path", place, printable(name)));
  dataset = open_dataset(dataset.name, "", use);
  dataset.form = form;
  dataset.weight = weight;
  dataset.most = most;
  return dataset;
}

}  // namespace

bool is_dataset_list(const std::string& path) { return path.ends_with(".yaml") || path.ends_with(".yml"); }

std::vector<Dataset> open_dataset_list(const std::string& path, DatasetUse use) {
  const YAML::Node document = parse_yaml(read_text_file(path, kMaxListBytes), path);
  if (!document.IsMap() || document.size() == 0)
    fail_input(fmt::format("{} is not a list of datasets; expected a name for each, with its path below", path));
  std::vector<Dataset> all;
  for (const auto& entry : document)
    all.push_back(open_entry(path, entry.first.IsScalar() ? entry.first.Scalar() : "?", entry.second, use));
  return all;
}

}  // namespace megatrain
