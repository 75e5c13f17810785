#include "megatrain/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/config/config_aliases.h"
#include "megatrain/config/config_keys.h"
#include "megatrain/config/foreign_keys.h"
#include "megatrain/config/idle_keys.h"
#include "megatrain/io/yaml.h"

namespace megatrain {
namespace {

// Collects the given values with where they stand, then applies them in the order of the key table.
class ConfigReader {
 public:
  explicit ConfigReader(std::string name) : name_(std::move(name)) {}

  void read_yaml(const std::string& text) {
    try {
      const YAML::Node document = parse_yaml(text, name_);
      if (document.IsNull()) return;
      if (!document.IsMap()) fail_config(fmt::format("{}: expected 'key: value' lines", at(document)));
      read_map(document, "");
      theirs_ = is_their_file();
    } catch (const YAML::Exception& e) {
      fail_config(fmt::format("{}:{}: not valid YAML: {}", name_, e.mark.line + 1, e.msg));
    }
  }

  void read_overrides(const std::vector<std::string>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i].size() < 3 || words[i].compare(0, 2, "--") != 0)
        fail_config(fmt::format("'{}' on the command line is not understood, expected --key=value", words[i]));
      const size_t equals = words[i].find('=');
      const std::string key_name = words[i].substr(2, equals == std::string::npos ? equals : equals - 2);
      const bool foreign = is_foreign_key(key_name);
      Given given{.value = {}, .origin = "--" + key_name, .on_command_line = true};
      const ConfigKey& key = foreign ? kForeign : known_config_key(given.origin, key_name);
      if (equals != std::string::npos) {
        given.value.text = words[i].substr(equals + 1);
      } else if (i + 1 < words.size() && words[i + 1].compare(0, 2, "--") != 0) {
        given.value.text = words[++i];
      } else if (key.flag) {
        given.value.text = "true";
      } else {
        fail_config(fmt::format("--{} needs a value: expected {}", key_name, key.accepts));
      }
      given.value.null = given.value.text == "null" || given.value.text == "~";
      if (foreign)
        foreign_[key_name] = {override_of(given, key_name), true};
      else
        given_[key_name] = given;
    }
  }

  TrainConfig finish(const ConfigNeeds& needs) {
    const std::vector<Translation> translations = take_foreign();
    refuse_unknown();
    TrainConfig config;
    for (const ConfigKey& key : config_keys()) {
      const auto found = given_.find(key.name);
      if (found == given_.end()) continue;
      const Given& given = found->second;
      if (!key.read(config, given.value))
        fail_config(fmt::format("{}: {} is {}, expected {}", given.origin,
                                given.theirs.empty() ? key.name : fmt::format("{} ({})", given.theirs, key.name),
                                given.value.null            ? "null"
                                : given.value.items.empty() ? "'" + given.value.text + "'"
                                                            : "a list with something else",
                                key.accepts));
    }
    check_presence(config, needs);
    if (!is_given("micro_batch")) config.micro_batch = default_micro_batch(config.batch, config.seq_len);
    check_sizes(config);
    check_disk(config);
    finish_dumps(config);
    if (!needs.idle) check_idle(config);
    if (!config.data.tokens.empty()) config.data.shuffle = false;
    if (!translations.empty()) show(translations, config);
    return config;
  }

 private:
  struct Given {
    ConfigText value;
    std::string origin;  // "FILE:LINE" or "--key"
    bool on_command_line = false;
    std::string theirs{};  // the key of another trainer that said it
  };

  struct ForeignGiven {
    Foreign value;
    bool on_command_line = false;
  };

  // Stands for any key of another trainer where only its name is known.
  static inline const ConfigKey kForeign{.accepts = "its value"};

  static Foreign override_of(const Given& given, const std::string& name) {
    if (given.value.null) return {.text = "", .where = given.origin, .null = true};
    return read_foreign_text(given.origin, name, given.value.text);
  }

  // Named in their way, the model decides; otherwise one key of ours makes the file ours.
  bool is_their_file() const {
    const auto is_theirs = [](const auto& entry) { return entry.first != "skip-bad"; };
    const auto is_ours = [](const auto& entry) { return entry.first != "seed"; };
    return foreign_.count("model_name_or_path") || (std::any_of(foreign_.begin(), foreign_.end(), is_theirs) &&
                                                    std::none_of(given_.begin(), given_.end(), is_ours));
  }

  // What keys of other trainers ask for, unless our own key is given in a place that goes over theirs.
  std::vector<Translation> take_foreign() {
    std::set<std::string> own;
    for (const auto& [name, given] : given_) own.insert(name);
    ForeignKeys keys;
    for (const auto& [name, given] : foreign_) keys[name] = given.value;
    const std::vector<Translation> translations = translate(keys, theirs_, own);
    for (const Translation& t : translations) {
      if (t.key.empty()) continue;
      const auto own_key = given_.find(t.key);
      if (!t.given) {
        if (own_key == given_.end()) given_[t.key] = {{.text = t.text, .null = t.text == "null"}, name_, false, t.from};
        continue;
      }
      const ForeignGiven& from = foreign_.at(t.from);
      if (own_key != given_.end() && own_key->second.on_command_line == from.on_command_line)
        fail_config(fmt::format("{}: {} means {}, which is given too ({}); keep one", from.value.where, t.from, t.key,
                                own_key->second.origin));
      if (own_key != given_.end() && own_key->second.on_command_line) continue;
      given_[t.key] = {{.text = t.text, .null = t.text == "null"}, from.value.where, from.on_command_line, t.from};
    }
    return translations;
  }

  void refuse_unknown() const {
    if (unknown_.empty()) return;
    const auto& [name, where] = unknown_.front();
    if (const std::string near = nearest_foreign_key(name);
        !near.empty() && (theirs_ || nearest_config_key(name).empty()))
      fail_config(fmt::format("{}: unknown key '{}'; did you mean '{}'?", where, name, near));
    known_config_key(where, name);
  }

  // The table of what became of keys of other trainers, to the log and into the configuration.
  void show(const std::vector<Translation>& translations, TrainConfig& config) const {
    std::vector<TranslationRow> rows;
    for (const Translation& t : translations) {
      TranslationRow row{t.theirs, t.note, t.given ? "given" : "default"};
      if (!t.key.empty()) {
        const Given& given = given_.at(t.key);
        row.here = fmt::format("{}: {}", t.key, find_config_key(t.key)->write(config));
        if (given.theirs.empty())
          row.from = given.origin;
        else if (!t.note.empty())
          row.here += fmt::format(" ({})", t.note);
      }
      rows.push_back(std::move(row));
    }
    std::stable_partition(rows.begin(), rows.end(), [](const TranslationRow& row) { return row.from != "default"; });
    config.translation = translation_table(rows);
    log_info(fmt::format("{}, in megatrain's words{}:", name_,
                         theirs_ ? ", with LLaMA-Factory's defaults for what is not given" : ""));
    std::istringstream lines(config.translation);
    for (std::string line; std::getline(lines, line);) log_info(line);
    if (theirs_ && !foreign_.count("finetuning_type"))
      log_warn(
          fmt::format("{}: finetuning_type is not given, which is lora in LLaMA-Factory; here all weights are trained. "
                      "Write finetuning_type: full",
                      name_));
  }

  std::string at(const YAML::Node& node) const { return fmt::format("{}:{}", name_, node.Mark().line + 1); }

  // Where a key was given, or the file when it has its default.
  std::string origin(const std::string& key) const {
    const auto found = given_.find(key);
    return found == given_.end() ? name_ : found->second.origin;
  }
  bool is_given(const std::string& key) const { return given_.count(key) != 0; }

  void read_map(const YAML::Node& map, const std::string& prefix) {
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) fail_config(fmt::format("{}: expected a plain key name", at(entry.first)));
      const std::string name = prefix + entry.first.Scalar();
      const std::string where = at(entry.first);
      const auto [first, fresh] = seen_.emplace(name, entry.first.Mark().line + 1);
      if (!fresh)
        fail_config(
            fmt::format("{}: key '{}' is given twice (first on line {}); keep one", where, name, first->second));
      if (is_config_section(name) && entry.second.IsMap()) {
        read_map(entry.second, name + ".");
      } else if (prefix.empty() && is_foreign_key(name)) {
        foreign_[name] = {read_foreign(where, name, entry.second)};
      } else if (name == "optim" && entry.second.IsScalar()) {  // another trainer's word for which optimizer
        foreign_["optim_type"] = {{.text = entry.second.Scalar(), .where = where}};
      } else if (!find_config_key(name) && !is_config_section(name)) {
        unknown_.emplace_back(name, where);
      } else if (!(is_config_section(name) && entry.second.IsNull())) {
        given_[name] = {read_value(where, known_config_key(where, name), entry.second), where};
      }
    }
  }

  // A list is its elements with commas between.
  static Foreign read_foreign(const std::string& where, const std::string& name, const YAML::Node& node) {
    Foreign value{.where = where};
    value.null = node.IsNull();
    if (node.IsScalar()) return read_foreign_text(where, name, node.Scalar());
    const bool list = takes_foreign_list(name), mapping = takes_foreign_mapping(name);
    if ((node.IsSequence() && !list) || (node.IsMap() && !mapping))
      fail_config(fmt::format("{}: {} is a {}, expected {}", where, name, node.IsMap() ? "section" : "list",
                              list ? "a value or a list of values" : "one value"));
    if (node.IsSequence())
      value.text =
          read_value(where, ConfigKey{.name = name, .accepts = "a value or a list of values", .list = true}, node).text;
    if (!node.IsMap()) return value;
    value.text = node.size() == 0 ? "{}" : "{…}";
    for (const auto& entry : node)
      value.entries[entry.first.IsScalar() ? entry.first.Scalar() : "?"] =
          entry.second.IsScalar() ? entry.second.Scalar() : "{…}";
    return value;
  }

  // The mapping may also be a text, as on the command line.
  static Foreign read_foreign_text(const std::string& where, const std::string& name, const std::string& text) {
    if (name != "lr_scheduler_kwargs" || !text.starts_with('{')) return {.text = text, .where = where};
    try {
      const YAML::Node node = YAML::Load(text);
      if (node.IsMap()) return read_foreign(where, name, node);
    } catch (const YAML::Exception&) {
    }
    fail_config(fmt::format("{}: {} is '{}', expected a mapping such as {{min_lr: 1e-6}}", where, name, text));
  }

  static ConfigText read_value(const std::string& where, const ConfigKey& key, const YAML::Node& node) {
    if (node.IsNull()) return {.text = "", .null = true};
    if (node.IsScalar()) return {.text = node.Scalar()};
    if (key.items) return {.text = "", .items = read_items(where, key, node)};
    if (!key.list || !node.IsSequence())
      fail_config(
          fmt::format("{}: {} is a {}, expected {}", where, key.name, node.IsMap() ? "section" : "list", key.accepts));
    ConfigText joined;
    for (const YAML::Node& element : node) {
      if (!element.IsScalar())
        fail_config(
            fmt::format("{}: {} holds something other than plain values, expected {}", where, key.name, key.accepts));
      joined.text += (joined.text.empty() ? "" : ",") + element.Scalar();
    }
    if (joined.text.empty()) joined.text = "none";
    return joined;
  }

  static std::vector<std::map<std::string, std::string>> read_items(const std::string& where, const ConfigKey& key,
                                                                    const YAML::Node& node) {
    std::vector<std::map<std::string, std::string>> items;
    if (node.IsMap()) {
      add_entries(where, key, node, "", items.emplace_back());
      return items;
    }
    for (const YAML::Node& element : node) add_entries(where, key, element, "", items.emplace_back());
    if (items.empty()) fail_config(fmt::format("{}: {} is an empty list, expected {}", where, key.name, key.accepts));
    return items;
  }

  static void add_entries(const std::string& where, const ConfigKey& key, const YAML::Node& node,
                          const std::string& name, std::map<std::string, std::string>& into) {
    if (node.IsMap()) {
      for (const auto& entry : node)
        add_entries(where, key, entry.second, (name.empty() ? "" : name + ".") + entry.first.as<std::string>(), into);
    } else if (!node.IsScalar() || !into.emplace(name, node.Scalar()).second) {
      fail_config(fmt::format("{}: {} is not understood at '{}', expected {}", where, key.name, name, key.accepts));
    }
  }

  void check_presence(const TrainConfig& config, const ConfigNeeds& needs) const {
    const bool path = !config.model.path.empty(), from_config = !config.model.config.empty();
    if (path && from_config)
      fail_config(
          fmt::format("{}: both model.path and model.config are given; keep model.path to train an existing model "
                      "or model.config to start from random weights",
                      origin("model.config")));
    if (needs.model && !path && !from_config)
      fail_config(fmt::format(
          "{}: no model; give model.path (a Hugging Face directory) or model.config (a config.json)", name_));
    if (config.precision == "fp32" && config.state.master != "fp32")
      fail_config(
          fmt::format("{}: state.master is {}, which is about bf16 weights, and precision is fp32; leave state.master "
                      "out, or take precision: bf16",
                      origin("state.master"), config.state.master));
    check_length(config, needs);
    check_datasets(config);
    if (!config.data.tokens.empty()) return;
    if (needs.data && config.data.train.empty() && (config.steps > 0 || config.epochs > 0 || config.tokens > 0))
      fail_config(fmt::format(
          "{}: no data; give data.train (datasets) or data.tokens (a file of raw little-endian token ids)", name_));
    for (const char* key : {"data.documents", "data.labels", "data.order"})
      if (is_given(key) && !given_.at(key).value.null)
        fail_config(fmt::format("{}: {} is given without data.tokens", origin(key), key));
  }

  bool has_value(const std::string& key) const { return is_given(key) && !given_.at(key).value.null; }

  void check_length(const TrainConfig& config, const ConfigNeeds& needs) const {
    std::vector<std::string> given;
    for (const char* key : {"steps", "epochs", "tokens"})
      if (has_value(key)) given.push_back(key);
    if (given.size() > 1)
      fail_config(fmt::format("{}: both {} and {} are given; keep the one that says how long the run is",
                              origin(given[1]), given[0], given[1]));
    if (needs.steps && given.empty())
      fail_config(fmt::format("{}: how long is the run? Give steps, epochs or tokens", name_));
    if (config.epochs > 0 && !config.data.order.empty())
      fail_config(fmt::format("{}: epochs and data.order are both given; with an order give steps", origin("epochs")));
  }

  void check_datasets(const TrainConfig& config) const {
    const bool datasets = !config.data.train.empty();
    if (datasets && !config.data.tokens.empty())
      fail_config(fmt::format("{}: both data.train and data.tokens are given; keep one", origin("data.train")));
    for (const char* key : {"data.eval", "data.eval_split"})
      if (!datasets && has_value(key) && given_.at(key).value.text != "0")
        fail_config(fmt::format("{}: {} needs data.train", origin(key), key));
    if (!config.data.eval.empty() && config.data.eval_split > 0)
      fail_config(fmt::format("{}: both data.eval and data.eval_split are given; keep one", origin("data.eval_split")));
    if (config.data.eval_split >= 1 && config.data.eval_split != std::floor(config.data.eval_split))
      fail_config(fmt::format("{}: data.eval_split is {}, expected a fraction below 1 or a whole number of samples",
                              origin("data.eval_split"), config.data.eval_split));
    const bool evaluates = !config.data.eval.empty() || config.data.eval_split > 0;
    for (const char* key : {"eval.every", "eval.patience", "eval.keep_best"})
      if (!evaluates && has_value(key) && given_.at(key).value.text != "0" && given_.at(key).value.text != "false")
        fail_config(
            fmt::format("{}: {} needs data to evaluate on: give data.eval or data.eval_split", origin(key), key));
    if (config.sample.every > 0 && config.sample.prompts.empty())
      fail_config(fmt::format("{}: sample.every needs sample.prompts", origin("sample.every")));
  }

  // The most sequences that divide the batch and hold no more tokens than large products need.
  static int64_t default_micro_batch(int64_t batch, int64_t seq_len) {
    constexpr int64_t kTokens = 8192;
    int64_t most = 1;
    for (int64_t n = 1; n <= std::min(batch, kTokens / seq_len); ++n) {
      if (batch % n == 0) most = n;
    }
    return most;
  }

  void check_sizes(const TrainConfig& config) const {
    if (config.micro_batch > config.batch || config.batch % config.micro_batch != 0)
      fail_config(fmt::format("{}: micro_batch is {}, expected a divisor of batch, which is {}",
                              is_given("micro_batch") ? origin("micro_batch") : origin("batch"), config.micro_batch,
                              config.batch));
    check_limits(config);
    if (config.optim.warmup >= 1 && config.optim.warmup != std::floor(config.optim.warmup))
      fail_config(
          fmt::format("{}: optim.warmup is {}, expected a whole number of steps, or a fraction of the run below 1",
                      origin("optim.warmup"), config.optim.warmup));
    if (config.optim.min_lr > config.optim.lr)
      fail_config(fmt::format("{}: optim.min_lr is {}, expected at most optim.lr, which is {}", origin("optim.min_lr"),
                              config.optim.min_lr, config.optim.lr));
  }

  // What is planned and run action by action; beyond these a plan alone takes minutes.
  void check_limits(const TrainConfig& config) const {
    constexpr int64_t kMicroTokens = int64_t{1} << 24;
    constexpr int64_t kSequences = int64_t{1} << 16, kParts = 1024;
    if (config.seq_len > kMostContext)
      fail_config(
          fmt::format("{}: seq_len is {}, expected at most {}", origin("seq_len"), config.seq_len, kMostContext));
    if (config.batch > kSequences)
      fail_config(fmt::format("{}: batch is {}, expected at most {} sequences of a step; lower it, or raise seq_len",
                              origin("batch"), config.batch, kSequences));
    const int64_t tokens = config.micro_batch * config.seq_len;
    if (tokens > kMicroTokens)
      fail_config(fmt::format("{}: a micro-batch of {} sequences of {} tokens is past 2^24 tokens; lower micro_batch",
                              origin("micro_batch"), config.micro_batch, config.seq_len));
    for (const auto& [key, chunk] : {std::pair{"mlp_chunk", config.mlp_chunk}, {"head_chunk", config.head_chunk}}) {
      if (chunk > 0 && ceil_div(tokens, chunk) > kParts)
        fail_config(
            fmt::format("{}: {} is {}, which cuts a micro-batch of {} tokens into {} parts, expected at most "
                        "{}; raise it, or leave it out",
                        origin(key), key, chunk, tokens, ceil_div(tokens, chunk), kParts));
    }
  }

  void check_disk(const TrainConfig& config) const {
    if (!config.memory.nvme_path.empty()) return;
    if (config.memory.nvme_bytes.value_or(0) > 0)
      fail_config(
          fmt::format("{}: memory.nvme needs memory.nvme_path, a directory on an NVMe drive", origin("memory.nvme")));
    if (config.memory.nvme_force)
      fail_config(fmt::format("{}: memory.nvme_force needs memory.nvme_path", origin("memory.nvme_force")));
  }

  // A file may say more than its run needs where it is another trainer's, or where the command line makes a key of it
  // idle: that is a warning when it is given, and the key has our default, so that config.resolved.yaml is read again.
  void check_idle(TrainConfig& config) const {
    for (const IdleRule& rule : idle_rules()) {
      if (!has_value(rule.key) || given_.at(rule.key).value.text == rule.off) continue;
      const std::string why = rule.why(config);
      if (why.empty()) continue;
      const Given& given = given_.at(rule.key);
      const ConfigKey& key = *find_config_key(rule.key);
      const std::string standard = key.write(TrainConfig{});
      const bool foreign = !given.theirs.empty() && given.theirs != "skip-bad";
      if (!foreign && !given.on_command_line && !rule.even_default && key.write(config) == standard) continue;
      const bool overridden = !given.on_command_line && is_given(rule.beside) && given_.at(rule.beside).on_command_line;
      const std::string said = fmt::format("{}: {} {}: {}", given.origin,
                                           foreign ? fmt::format("{} ({})", given.theirs, rule.key) : rule.key,
                                           rule.warns ? "is too long" : "has no effect", why);
      if (!foreign && !overridden && !rule.warns) fail_config(said);
      if (given.origin != name_) log_warn(said);  // not by their default
      if (!rule.warns) key.read(config, {.text = standard, .null = standard == "null"});
    }
  }

  void finish_dumps(TrainConfig& config) const {
    TrainConfig::Dump& dump = config.dump;
    if (!dump.steps.empty() && !is_given("dump.grads") && !is_given("dump.state")) dump.grads = dump.state = dump.steps;
    if (dump.grads.contains(0)) {
      if (dump.grads != dump.steps)
        fail_config(
            fmt::format("{}: dump.grads names step 0, but gradients exist from step 1 on", origin("dump.grads")));
      auto& first = dump.grads.ranges.front();
      if (++first.first > first.second) dump.grads.ranges.erase(dump.grads.ranges.begin());
    }
    for (const auto& [name, steps] :
         {std::pair{"dump.steps", &dump.steps}, {"dump.grads", &dump.grads}, {"dump.state", &dump.state}})
      if (has_value("steps") && !steps->ranges.empty() && steps->ranges.back().second > config.steps)
        fail_config(fmt::format("{}: {} names step {}, but the run has {}", origin(name), name,
                                steps->ranges.back().second, counted(config.steps, "step")));
  }

  std::string name_;
  std::map<std::string, Given> given_;
  std::map<std::string, ForeignGiven> foreign_;               // keys of other trainers
  bool theirs_ = false;                                       // the file is one of LLaMA-Factory
  std::vector<std::pair<std::string, std::string>> unknown_;  // keys of the file with where they stand
  std::map<std::string, int> seen_;                           // keys and sections of the file, with their line
};

}  // namespace

TrainConfig parse_config(const std::string& text, const std::string& name, const std::vector<std::string>& overrides,
                         const ConfigNeeds& needs) {
  ConfigReader reader(name);
  reader.read_yaml(text);
  reader.read_overrides(overrides);
  return reader.finish(needs);
}

TrainConfig load_config(const std::string& path, const std::vector<std::string>& overrides, const ConfigNeeds& needs) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    fail_config(
        fmt::format("{} is a directory, expected a YAML configuration file; a model is named in one, as "
                    "model.path",
                    path));
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (file) text << file.rdbuf();
  if (!file)
    fail_config(fmt::format("cannot read the configuration {}: {}; give the path of a YAML file", path,
                            std::strerror(errno != 0 ? errno : EIO)));
  return parse_config(text.str(), path, overrides, needs);
}

std::string resolved_yaml(const TrainConfig& config) {
  std::string text, section;
  for (const ConfigKey& key : config_keys()) {
    const std::string in = config_section(key.name);
    if (in != section && !in.empty()) text += in + ":\n";
    section = in;
    text += fmt::format("{}{}: {}\n", in.empty() ? "" : "  ", in.empty() ? key.name : key.name.substr(in.size() + 1),
                        key.write(config));
  }
  return text;
}

bool is_config_override(const std::string& word) {
  if (word.compare(0, 2, "--") != 0) return false;
  const std::string name = word.substr(2, word.find('=') == std::string::npos ? std::string::npos : word.find('=') - 2);
  return find_config_key(name) != nullptr || is_foreign_key(name);
}

}  // namespace megatrain
