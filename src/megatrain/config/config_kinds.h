// The kinds of configuration keys: how a value of each kind is read from text, checked and printed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/config/config.h"

namespace megatrain {

// A value as written in the file or on the command line. `null` is YAML's null, spelled out or empty.
struct ConfigText {
  std::string text;
  bool null = false;
  // For a key with `items`: the entries of each element, nested names dotted. A plain element has one entry without a
  // name.
  std::vector<std::map<std::string, std::string>> items{};
};

struct ConfigKey {
  std::string name;         // dotted
  std::string other_names;  // names other trainers use, separated by spaces; only used to suggest `name`
  std::string accepts;      // completes "expected ..."
  std::string help;
  std::vector<std::string> choices{};  // all accepted words, if there is a fixed set
  bool path = false;                   // the value is the path of a file or folder
  bool flag = false;                   // may stand alone on the command line, meaning true
  bool list = false;                   // a YAML sequence is read as one text, joined by commas
  bool items = false;                  // a YAML sequence or mapping is read into ConfigText::items
  bool lists = false;                  // in items, a named entry may be a list, which is read joined by commas
  bool mapping = false;                // "{...}" on the command line is a mapping, for a key with `items`
  // Returns false when the value is not accepted. May rely on keys that come earlier in the table.
  std::function<bool(TrainConfig&, const ConfigText&)> read;
  // Says what is wrong with a value that `read` rejects, if that can be more specific than `accepts`; may be empty.
  std::function<std::string(const ConfigText&)> problem{};
  std::function<std::string(const TrainConfig&)> write;  // as a YAML scalar that `read` accepts
};

// Returns the member of a configuration that a key sets.
template <class T>
using ConfigField = T& (*)(TrainConfig&);

// Null is the empty path.
ConfigKey path_key(const char* name, const char* other_names, const char* help, ConfigField<std::string> field);

// A line of text. Null is the empty text.
ConfigKey text_key(const char* name, const char* other_names, const char* help, ConfigField<std::string> field);

ConfigKey choice_key(const char* name, const char* other_names, std::vector<std::string> choices, const char* help,
                     ConfigField<std::string> field);

ConfigKey integer_key(const char* name, const char* other_names, int64_t least, int64_t most, const char* help,
                      ConfigField<int64_t> field);

// Any unsigned 64-bit integer.
ConfigKey natural_key(const char* name, const char* other_names, const char* help, ConfigField<uint64_t> field);

struct ConfigInterval {
  double least;
  double most;
  bool open = false;  // `most` itself is excluded
  bool null_is_zero = false;
};
ConfigKey real_key(const char* name, const char* other_names, ConfigInterval in, const char* help,
                   ConfigField<double> field);

// A number above 0 that gives the length of the run. Null, printed for 0, means that another key does.
ConfigKey length_key(const char* name, const char* other_names, const char* accepts, const char* help, int64_t most,
                     ConfigField<int64_t> field);
ConfigKey length_key(const char* name, const char* other_names, const char* accepts, const char* help, double most,
                     ConfigField<double> field);

ConfigKey bool_key(const char* name, const char* other_names, const char* help, ConfigField<bool> field);

// Steps from 0, a fraction of the run between 0 and 1, or "epoch", which is stored as the fraction 1.
ConfigKey every_key(const char* name, const char* other_names, int64_t most, const char* help,
                    ConfigField<int64_t> steps, ConfigField<double> part);

// Bytes; "auto" is none.
ConfigKey budget_key(const char* name, const char* other_names, const char* help,
                     ConfigField<std::optional<int64_t>> field);

// A number from 0 to `most`; "auto" is none, and "model" is none with `of_model`.
ConfigKey coefficient_key(const char* name, const char* other_names, double most, const char* help,
                          ConfigField<std::optional<double>> field, ConfigField<bool> of_model);

// Patterns over tensor names; null and "none" mean no pattern.
ConfigKey patterns_key(const char* name, const char* other_names, const char* help,
                       ConfigField<std::vector<std::string>> field);

// Some of the choices, or none of them.
ConfigKey choices_key(const char* name, const char* other_names, std::vector<std::string> choices, const char* help,
                      ConfigField<std::vector<std::string>> field);

ConfigKey texts_key(const char* name, const char* other_names, const char* help,
                    ConfigField<std::vector<std::string>> field);

// Names of modules, or one regular expression for whole names.
ConfigKey modules_key(const char* name, const char* other_names, const char* help,
                      ConfigField<std::vector<std::string>> field);

// Ends of names of modules.
ConfigKey module_ends_key(const char* name, const char* other_names, const char* help,
                          ConfigField<std::vector<std::string>> field);

// A number for each regular expression of modules: {"layers.0.q_proj": 32}. `most`: the largest number.
ConfigKey module_numbers_key(const char* name, const char* other_names, double least, double most, const char* help,
                             ConfigField<std::vector<std::pair<std::string, double>>> field);

// Ids of tokens, or such a list for each module: {embed_tokens: [5, 7], lm_head: [5]}. Without a name they are those of
// embed_tokens.
ConfigKey token_indices_key(const char* name, const char* other_names, const char* help,
                            ConfigField<std::vector<std::pair<std::string, std::vector<int64_t>>>> field);

ConfigKey datasets_key(const char* name, const char* other_names, const char* help,
                       ConfigField<std::vector<DatasetChoice>> field);

ConfigKey step_set_key(const char* name, const char* other_names, const char* help, ConfigField<StepSet> field);

// A set of steps, or true for the steps of `meant`, an earlier key, or for all steps if that names none.
ConfigKey step_flag_key(const char* name, const char* other_names, const char* help, ConfigField<StepSet> field,
                        ConfigField<StepSet> meant);

}  // namespace megatrain
