// The table of configuration keys: the only place that knows a key's name, field, accepted values and meaning.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megatrain/train/config.h"

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
  bool flag = false;   // may stand alone on the command line: true
  bool list = false;   // a YAML sequence is read as its elements joined by commas
  bool items = false;  // a YAML sequence or mapping is read into ConfigText::items
  // False when the value is not accepted. A key may rely on the keys before it in the table.
  std::function<bool(TrainConfig&, const ConfigText&)> read;
  std::function<std::string(const TrainConfig&)> write;  // as a YAML scalar that `read` accepts
};

// In the order of config.resolved.yaml; the keys of a section are neighbours.
const std::vector<ConfigKey>& config_keys();

const ConfigKey* find_config_key(const std::string& name);  // nullptr when there is none

// "optim" of "optim.lr"; empty for a key of the top level.
std::string config_section(const std::string& name);
bool is_config_section(const std::string& name);

// The known key or section closest to what was written.
std::string nearest_config_key(const std::string& unknown);

}  // namespace megatrain
