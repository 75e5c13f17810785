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

// A value as it stands in the file or on the command line. `null` is YAML's null, written or empty.
struct ConfigText {
  std::string text;
  bool null = false;
  // Of a key with `items`: each element's entries, nested names dotted; a plain element has one entry without a name.
  std::vector<std::map<std::string, std::string>> items{};
};

struct ConfigKey {
  std::string name;     // dotted
  std::string habits;   // what other trainers call it, separated by spaces; only ever suggests `name`
  std::string accepts;  // completes "expected ..."
  std::string help;
  std::vector<std::string> choices{};  // the words it accepts, where they can be counted
  bool path = false;                   // the value is one of a file or a folder
  bool flag = false;                   // may stand alone on the command line: true
  bool list = false;                   // a YAML sequence is read as its elements joined by commas
  bool items = false;                  // a YAML sequence or mapping is read into ConfigText::items
  // False when the value is not accepted. A key may rely on the keys before it in the table.
  std::function<bool(TrainConfig&, const ConfigText&)> read;
  // What is wrong with a value that `read` does not accept, where more can be said than `accepts`; may be empty.
  std::function<std::string(const ConfigText&)> problem{};
  std::function<std::string(const TrainConfig&)> write;  // as a YAML scalar that `read` accepts
};

// The member of a configuration that a key names.
template <class T>
using ConfigField = T& (*)(TrainConfig&);

// Null: the empty path.
ConfigKey path_key(const char* name, const char* habits, const char* help, ConfigField<std::string> field);

ConfigKey choice_key(const char* name, const char* habits, std::vector<std::string> choices, const char* help,
                     ConfigField<std::string> field);

ConfigKey integer_key(const char* name, const char* habits, int64_t least, int64_t most, const char* help,
                      ConfigField<int64_t> field);

// Any whole number of 64 bits without a sign.
ConfigKey natural_key(const char* name, const char* habits, const char* help, ConfigField<uint64_t> field);

struct ConfigInterval {
  double least;
  double most;
  bool open = false;  // `most` itself is not accepted
  bool null_is_zero = false;
};
ConfigKey real_key(const char* name, const char* habits, ConfigInterval in, const char* help,
                   ConfigField<double> field);

// A number above 0 that says how long the run is; null, and printed for 0: another one does.
ConfigKey length_key(const char* name, const char* habits, const char* accepts, const char* help, int64_t most,
                     ConfigField<int64_t> field);
ConfigKey length_key(const char* name, const char* habits, const char* accepts, const char* help, double most,
                     ConfigField<double> field);

ConfigKey bool_key(const char* name, const char* habits, const char* help, ConfigField<bool> field);

// Steps from 0, a part of the run above 0 and below 1, or "epoch", which is a part of 1.
ConfigKey every_key(const char* name, const char* habits, int64_t most, const char* help, ConfigField<int64_t> steps,
                    ConfigField<double> part);

// Bytes; "auto": none.
ConfigKey budget_key(const char* name, const char* habits, const char* help, ConfigField<std::optional<int64_t>> field);

// A number from 0 to `most`; "auto": none.
ConfigKey coefficient_key(const char* name, const char* habits, double most, const char* help,
                          ConfigField<std::optional<double>> field);

// Patterns over tensor names; null and "none": no pattern.
ConfigKey patterns_key(const char* name, const char* habits, const char* help,
                       ConfigField<std::vector<std::string>> field);

ConfigKey texts_key(const char* name, const char* habits, const char* help,
                    ConfigField<std::vector<std::string>> field);

ConfigKey datasets_key(const char* name, const char* habits, const char* help,
                       ConfigField<std::vector<DatasetChoice>> field);

ConfigKey step_set_key(const char* name, const char* habits, const char* help, ConfigField<StepSet> field);

// A set of steps, or true: the steps of `meant`, a key before this one, or all steps when it names none.
ConfigKey step_flag_key(const char* name, const char* habits, const char* help, ConfigField<StepSet> field,
                        ConfigField<StepSet> meant);

}  // namespace megatrain
