#include "megatrain/config/config_kinds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/config/dataset_choice.h"
#include "megatrain/config/read_number.h"

namespace megatrain {
namespace {

bool read_bool(const std::string& text, bool& value) {
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  value = lower == "true" || lower == "yes" || lower == "on";
  return value || lower == "false" || lower == "no" || lower == "off";
}

bool read_steps(const std::string& text, StepSet& steps) {
  try {
    steps = parse_steps(text);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// A YAML sequence from elements that are YAML already; null if empty.
std::string list_of(const std::vector<std::string>& values) {
  return values.empty() ? std::string("null") : fmt::format("[{}]", fmt::join(values, ", "));
}

template <class T>
const T& value_of(ConfigField<T> field, const TrainConfig& config) {
  return field(const_cast<TrainConfig&>(config));  // only read
}

std::string write_dataset(const DatasetChoice& dataset) {
  std::string text = "{path: " + quoted(dataset.path);
  if (dataset.format != "auto") text += ", format: " + dataset.format;
  if (dataset.weight != 1) text += fmt::format(", weight: {}", dataset.weight);
  if (dataset.most > 0) text += fmt::format(", most: {}", dataset.most);
  if (dataset.most_percent > 0) text += fmt::format(", most: {}%", dataset.most_percent);
  for (const auto& [name, value] : dataset.options) text += fmt::format(", {}: {}", name, quoted(value));
  return text + "}";
}

// Describes the first entry that cannot be read.
std::string dataset_problem(const ConfigText& value) {
  for (size_t i = 0; i < value.items.size(); ++i) {
    DatasetChoice dataset;
    const std::string problem = read_dataset_choice(value.items[i], dataset);
    if (problem.empty()) continue;
    return fmt::format("entry {}{}: {}", i + 1, dataset.path.empty() ? "" : fmt::format(" ({})", dataset.path),
                       problem);
  }
  return "";
}

template <class Number>
ConfigKey length_key_of(const char* name, const char* other_names, const char* accepts, const char* help, Number most,
                        ConfigField<Number> field) {
  return {.name = name,
          .other_names = other_names,
          .accepts = accepts,
          .help = help,
          .read =
              [field, most](TrainConfig& config, const ConfigText& value) {
                if (value.null) return true;
                Number& number = field(config);
                return read_number(value.text, number) && number > 0 && number <= most;
              },
          .write =
              [field](const TrainConfig& config) {
                return value_of(field, config) > 0 ? fmt::format("{}", value_of(field, config)) : std::string("null");
              }};
}

}  // namespace

ConfigKey path_key(const char* name, const char* other_names, const char* help, ConfigField<std::string> field) {
  return {.name = name,
          .other_names = other_names,
          .accepts = "a path",
          .help = help,
          .path = true,
          .read =
              [field](TrainConfig& config, const ConfigText& value) {
                field(config) = value.null ? "" : value.text;
                return value.null || !value.text.empty();
              },
          .write =
              [field](const TrainConfig& config) {
                return value_of(field, config).empty() ? "null" : quoted(value_of(field, config));
              }};
}

ConfigKey text_key(const char* name, const char* other_names, const char* help, ConfigField<std::string> field) {
  ConfigKey key = path_key(name, other_names, help, field);
  key.accepts = "a text";
  key.path = false;
  return key;
}

ConfigKey choice_key(const char* name, const char* other_names, std::vector<std::string> choices, const char* help,
                     ConfigField<std::string> field) {
  return {.name = name,
          .other_names = other_names,
          .accepts = fmt::format("{}", fmt::join(choices, " or ")),
          .help = help,
          .choices = choices,
          .read =
              [field, choices](TrainConfig& config, const ConfigText& value) {
                field(config) = value.text;
                return !value.null && std::find(choices.begin(), choices.end(), value.text) != choices.end();
              },
          .write = [field](const TrainConfig& config) { return value_of(field, config); }};
}

ConfigKey integer_key(const char* name, const char* other_names, int64_t least, int64_t most, const char* help,
                      ConfigField<int64_t> field) {
  return {.name = name,
          .other_names = other_names,
          .accepts = fmt::format("a whole number from {} to {}", least, most),
          .help = help,
          .read =
              [field, least, most](TrainConfig& config, const ConfigText& value) {
                return !value.null && read_number(value.text, field(config)) && field(config) >= least &&
                       field(config) <= most;
              },
          .write = [field](const TrainConfig& config) { return std::to_string(value_of(field, config)); }};
}

ConfigKey natural_key(const char* name, const char* other_names, const char* help, ConfigField<uint64_t> field) {
  return {.name = name,
          .other_names = other_names,
          .accepts = fmt::format("a whole number from 0 to {}", std::numeric_limits<uint64_t>::max()),
          .help = help,
          .read = [field](TrainConfig& config,
                          const ConfigText& value) { return !value.null && read_number(value.text, field(config)); },
          .write = [field](const TrainConfig& config) { return std::to_string(value_of(field, config)); }};
}

ConfigKey real_key(const char* name, const char* other_names, ConfigInterval in, const char* help,
                   ConfigField<double> field) {
  return {.name = name,
          .other_names = other_names,
          .accepts = fmt::format("a number from {} {} {}{}", in.least, in.open ? "to below" : "to", in.most,
                                 in.null_is_zero ? ", or null" : ""),
          .help = help,
          .read =
              [field, in](TrainConfig& config, const ConfigText& value) {
                double& number = field(config);
                if (value.null && in.null_is_zero) {
                  number = 0;
                  return true;
                }
                return !value.null && read_number(value.text, number) && std::isfinite(number) && number >= in.least &&
                       (in.open ? number < in.most : number <= in.most);
              },
          .write = [field](const TrainConfig& config) { return fmt::format("{}", value_of(field, config)); }};
}

ConfigKey length_key(const char* name, const char* other_names, const char* accepts, const char* help, int64_t most,
                     ConfigField<int64_t> field) {
  return length_key_of(name, other_names, accepts, help, most, field);
}

ConfigKey length_key(const char* name, const char* other_names, const char* accepts, const char* help, double most,
                     ConfigField<double> field) {
  return length_key_of(name, other_names, accepts, help, most, field);
}

ConfigKey bool_key(const char* name, const char* other_names, const char* help, ConfigField<bool> field) {
  return {.name = name,
          .other_names = other_names,
          .accepts = "true or false",
          .help = help,
          .flag = true,
          .read = [field](TrainConfig& config,
                          const ConfigText& value) { return !value.null && read_bool(value.text, field(config)); },
          .write = [field](const TrainConfig& config) { return value_of(field, config) ? "true" : "false"; }};
}

ConfigKey every_key(const char* name, const char* other_names, int64_t most, const char* help,
                    ConfigField<int64_t> steps, ConfigField<double> part) {
  return {.name = name,
          .other_names = other_names,
          .accepts = fmt::format(
              "a whole number of steps from 0 to {}, a part of the run above 0 and below 1, or epoch", most),
          .help = help,
          .choices = {"epoch"},
          .read =
              [steps, part, most](TrainConfig& config, const ConfigText& value) {
                double number = 0;
                const bool epoch = value.text == "epoch";
                if (value.null || (!epoch && !read_number(value.text, number))) return false;
                const bool whole = number == std::floor(number);
                if (!(number >= 0 && number <= static_cast<double>(most)) || (number > 1 && !whole)) return false;
                part(config) = epoch ? 1 : whole ? 0 : number;
                steps(config) = whole ? static_cast<int64_t>(number) : 0;
                return true;
              },
          .write =
              [steps, part](const TrainConfig& config) {
                const double share = value_of(part, config);
                if (share == 1) return std::string("epoch");
                return share > 0 ? fmt::format("{}", share) : std::to_string(value_of(steps, config));
              }};
}

// A few bytes: the number is meant in GiB.
bool lacks_unit(const std::string& size) {
  constexpr int64_t kMostGib = 1 << 16;
  int64_t number = 0;
  return read_number(size, number) && number > 0 && number < kMostGib;
}

ConfigKey budget_key(const char* name, const char* other_names, const char* help,
                     ConfigField<std::optional<int64_t>> field) {
  return {.name = name,
          .other_names = other_names,
          .accepts = "auto or a size (24GiB, 512MB, 1048576)",
          .help = help,
          .read =
              [field](TrainConfig& config, const ConfigText& value) {
                field(config).reset();
                if (value.null) return false;
                if (value.text == "auto") return true;
                try {
                  field(config) = parse_bytes(value.text);
                } catch (const Error&) {
                  return false;
                }
                return *field(config) >= 0 && !lacks_unit(value.text);
              },
          .problem = [](const ConfigText& value) -> std::string {
            if (value.null || !lacks_unit(value.text)) return "";
            return fmt::format("{0} is {0} bytes; did you mean {0}GiB?", value.text);
          },
          .write =
              [field](const TrainConfig& config) {
                return value_of(field, config) ? std::to_string(*value_of(field, config)) : std::string("auto");
              }};
}

ConfigKey coefficient_key(const char* name, const char* other_names, double most, const char* help,
                          ConfigField<std::optional<double>> field, ConfigField<bool> of_model) {
  return {.name = name,
          .other_names = other_names,
          .accepts = fmt::format("auto, model or a number from 0 to {}", most),
          .help = help,
          .read =
              [field, of_model, most](TrainConfig& config, const ConfigText& value) {
                field(config).reset();
                of_model(config) = value.text == "model" && !value.null;
                if (of_model(config) || (value.text == "auto" && !value.null)) return true;
                return !value.null && read_number(value.text, field(config).emplace()) && *field(config) >= 0 &&
                       *field(config) <= most;
              },
          .write =
              [field, of_model](const TrainConfig& config) {
                const std::string none = value_of(of_model, config) ? "model" : "auto";
                return value_of(field, config) ? fmt::format("{}", *value_of(field, config)) : none;
              }};
}

ConfigKey patterns_key(const char* name, const char* other_names, const char* help,
                       ConfigField<std::vector<std::string>> field) {
  return {.name = name,
          .other_names = other_names,
          .accepts = "none or a list of patterns ([\"model.embed_tokens.*\", \"model.layers.[0-9].*\"] or \"a,b\")",
          .help = help,
          .list = true,
          .read =
              [field](TrainConfig& config, const ConfigText& value) {
                std::vector<std::string>& patterns = field(config);
                patterns.clear();
                if (value.null || value.text == "none") return true;
                std::stringstream parts(value.text + ",");
                for (std::string part; std::getline(parts, part, ',');) {
                  const size_t first = part.find_first_not_of(' '), last = part.find_last_not_of(' ');
                  if (first == std::string::npos) return false;
                  patterns.push_back(part.substr(first, last + 1 - first));
                }
                return true;
              },
          .write =
              [field](const TrainConfig& config) {
                const std::vector<std::string>& patterns = value_of(field, config);
                return patterns.empty() ? "none" : quoted(fmt::format("{}", fmt::join(patterns, ",")));
              }};
}

ConfigKey choices_key(const char* name, const char* other_names, std::vector<std::string> choices, const char* help,
                      ConfigField<std::vector<std::string>> field) {
  ConfigKey key = patterns_key(name, other_names, help, field);
  key.accepts = fmt::format("none or some of {}", fmt::join(choices, ", "));
  key.read = [read = key.read, field, choices = std::move(choices)](TrainConfig& config, const ConfigText& value) {
    if (!read(config, value)) return false;
    const std::vector<std::string>& given = field(config);
    return std::all_of(given.begin(), given.end(), [&](const std::string& each) {
      return std::find(choices.begin(), choices.end(), each) != choices.end() &&
             std::count(given.begin(), given.end(), each) == 1;
    });
  };
  return key;
}

ConfigKey texts_key(const char* name, const char* other_names, const char* help,
                    ConfigField<std::vector<std::string>> field) {
  return {.name = name,
          .other_names = other_names,
          .accepts = "a text or a list of texts",
          .help = help,
          .items = true,
          .read =
              [field](TrainConfig& config, const ConfigText& value) {
                std::vector<std::string>& texts = field(config);
                texts.clear();
                for (const auto& entries : value.items) {
                  if (entries.size() != 1 || !entries.begin()->first.empty()) return false;
                  texts.push_back(entries.begin()->second);
                }
                if (!value.null && value.items.empty()) texts.push_back(value.text);
                return true;
              },
          .write =
              [field](const TrainConfig& config) {
                std::vector<std::string> texts;
                for (const std::string& text : value_of(field, config)) texts.push_back(quoted(text));
                return list_of(texts);
              }};
}

namespace {

constexpr const char* kPatternCharacters = "\\^$*+?()[]{}|";  // names of modules have none of these

}  // namespace

ConfigKey modules_key(const char* name, const char* other_names, const char* help,
                      ConfigField<std::vector<std::string>> field) {
  ConfigKey key = texts_key(name, other_names, help, field);
  key.accepts = "names of modules ([q_proj, v_proj] or q_proj,v_proj), or one regular expression for whole names";
  key.read = [field](TrainConfig& config, const ConfigText& value) {
    std::vector<std::string>& modules = field(config);
    modules.clear();
    for (const auto& entries : value.items) {
      if (entries.size() != 1 || !entries.begin()->first.empty() || entries.begin()->second.empty()) return false;
      modules.push_back(entries.begin()->second);
    }
    if (value.null || !value.items.empty()) return true;
    if (value.text.find_first_of(kPatternCharacters) != std::string::npos) {  // a comma may be part of it
      modules.push_back(value.text);
      return true;
    }
    std::stringstream parts(value.text + ",");
    for (std::string part; std::getline(parts, part, ',');) {
      const size_t first = part.find_first_not_of(' '), last = part.find_last_not_of(' ');
      if (first == std::string::npos) return false;
      modules.push_back(part.substr(first, last + 1 - first));
    }
    return true;
  };
  return key;
}

ConfigKey module_ends_key(const char* name, const char* other_names, const char* help,
                          ConfigField<std::vector<std::string>> field) {
  ConfigKey key = modules_key(name, other_names, help, field);
  key.accepts = "ends of names of modules ([lm_head, norm] or lm_head,norm)";
  key.read = [field, read = key.read](TrainConfig& config, const ConfigText& value) {
    return read(config, value) && std::ranges::none_of(field(config), [](const std::string& end) {
             return end.find_first_of(kPatternCharacters) != std::string::npos;
           });
  };
  return key;
}

ConfigKey module_numbers_key(const char* name, const char* other_names, double least, double most, const char* help,
                             ConfigField<std::vector<std::pair<std::string, double>>> field) {
  return {.name = name,
          .other_names = other_names,
          .accepts = "null or a number for each module, {q_proj: 16, \"layers.0.mlp.down_proj\": 32}",
          .help = help,
          .items = true,
          .mapping = true,
          .read =
              [field, least, most](TrainConfig& config, const ConfigText& value) {
                auto& numbers = field(config);
                numbers.clear();
                for (const auto& entries : value.items) {
                  for (const auto& [module, text] : entries) {
                    double number = 0;
                    if (module.empty() || !read_number(text, number) || !(number >= least && number <= most))
                      return false;
                    numbers.emplace_back(module, number);
                  }
                }
                return value.null || !value.items.empty();
              },
          .problem = [least, most](const ConfigText& value) -> std::string {
            for (const auto& entries : value.items) {
              for (const auto& [module, text] : entries) {
                double number = 0;
                if (!read_number(text, number) || !(number >= least && number <= most))
                  return fmt::format("'{}' has {}, expected a number from {:g} to {:g}", module, text, least, most);
              }
            }
            return "";
          },
          .write =
              [field](const TrainConfig& config) {
                std::vector<std::string> entries;
                for (const auto& [module, number] : value_of(field, config))
                  entries.push_back(fmt::format("{{{}: {}}}", quoted(module), number));
                return list_of(entries);
              }};
}

namespace {

// Adds numbers that are separated by commas.
bool read_ids(const std::string& text, std::vector<int64_t>& ids) {
  std::stringstream parts(text + ",");
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t first = part.find_first_not_of(' '), last = part.find_last_not_of(' ');
    int64_t id = 0;
    if (first == std::string::npos || !read_number(part.substr(first, last + 1 - first), id) || id < 0) return false;
    ids.push_back(id);
  }
  return true;
}

}  // namespace

ConfigKey token_indices_key(const char* name, const char* other_names, const char* help,
                            ConfigField<std::vector<std::pair<std::string, std::vector<int64_t>>>> field) {
  constexpr const char* kEmbedding = "embed_tokens";
  return {.name = name,
          .other_names = other_names,
          .accepts = "null, ids of tokens ([151665, 151666]), or ids by module: {embed_tokens: [5, 7], lm_head: [5]}",
          .help = help,
          .items = true,
          .lists = true,
          .mapping = true,
          .read =
              [field, kEmbedding](TrainConfig& config, const ConfigText& value) {
                auto& modules = field(config);
                modules.clear();
                if (value.null) return true;
                const auto add = [&](const std::string& module, const std::string& text) {
                  const bool more = module == kEmbedding && !modules.empty() && modules.back().first == kEmbedding;
                  return read_ids(
                      text, more ? modules.back().second : modules.emplace_back(module, std::vector<int64_t>()).second);
                };
                if (value.items.empty()) return add(kEmbedding, value.text);
                for (const auto& entries : value.items) {
                  for (const auto& [module, text] : entries) {
                    if (!add(module.empty() ? kEmbedding : module, text)) return false;
                  }
                }
                return true;
              },
          .write =
              [field, kEmbedding](const TrainConfig& config) {
                const auto& modules = value_of(field, config);
                std::vector<std::string> entries;
                for (const auto& [module, ids] : modules) {
                  if (modules.size() == 1 && module == kEmbedding) return fmt::format("[{}]", fmt::join(ids, ", "));
                  entries.push_back(fmt::format("{{{}: [{}]}}", quoted(module), fmt::join(ids, ", ")));
                }
                return list_of(entries);
              }};
}

ConfigKey datasets_key(const char* name, const char* other_names, const char* help,
                       ConfigField<std::vector<DatasetChoice>> field) {
  return {.name = name,
          .other_names = other_names,
          .accepts = fmt::format("a path, paths separated by commas, or a list of paths and of {{path, format ({}), "
                                 "weight (above 0), most (500 or 20%), columns.*, tags.*}}",
                                 dataset_formats()),
          .help = help,
          .path = true,
          .items = true,
          .read =
              [field](TrainConfig& config, const ConfigText& value) {
                std::vector<DatasetChoice>& datasets = field(config);
                datasets.clear();
                if (value.null) return true;
                for (const auto& entries : value.items)
                  if (!read_dataset_choice(entries, datasets.emplace_back()).empty()) return false;
                if (!value.items.empty()) return true;
                std::stringstream paths(value.text);
                for (std::string path; std::getline(paths, path, ',');) {
                  path.erase(0, path.find_first_not_of(' '));
                  path.erase(path.find_last_not_of(' ') + 1);
                  if (path.empty()) return false;
                  datasets.emplace_back().path = path;
                }
                return !datasets.empty();
              },
          .problem = dataset_problem,
          .write =
              [field](const TrainConfig& config) {
                std::vector<std::string> texts;
                for (const DatasetChoice& dataset : value_of(field, config)) texts.push_back(write_dataset(dataset));
                return list_of(texts);
              }};
}

ConfigKey step_set_key(const char* name, const char* other_names, const char* help, ConfigField<StepSet> field) {
  return {.name = name,
          .other_names = other_names,
          .accepts = "none, all, a step (3), a list ([1, 5] or \"1,5\") or a range (2-4)",
          .help = help,
          .list = true,
          .read = [field](TrainConfig& config,
                          const ConfigText& value) { return !value.null && read_steps(value.text, field(config)); },
          .write = [field](const TrainConfig& config) { return format_steps(value_of(field, config)); }};
}

ConfigKey step_flag_key(const char* name, const char* other_names, const char* help, ConfigField<StepSet> field,
                        ConfigField<StepSet> meant) {
  ConfigKey key = step_set_key(name, other_names, help, field);
  key.accepts = "true, false, " + key.accepts;
  key.flag = true;
  key.read = [field, meant, read_set = key.read](TrainConfig& config, const ConfigText& value) {
    bool on = false;
    if (value.null || !read_bool(value.text, on)) return read_set(config, value);
    StepSet& steps = field(config);
    steps = on ? meant(config) : StepSet{};
    if (on && steps.empty()) steps.all = true;
    return true;
  };
  return key;
}

}  // namespace megatrain
