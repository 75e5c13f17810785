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

#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/config/config_keys.h"
#include "megatrain/config/foreign/trainer.h"
#include "megatrain/config/foreign/translate.h"
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
      find_trainer(document);
      read_map(document, "");
      theirs_ = theirs_ || has_their_keys_alone();
    } catch (const YAML::Exception& e) {
      fail_config(fmt::format("{}:{}: not valid YAML: {}", name_, e.mark.line + 1, e.msg));
    }
  }

  void read_overrides(const std::vector<std::string>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i].size() < 3 || words[i].compare(0, 2, "--") != 0)
        fail_config(fmt::format("'{}' on the command line is not understood, expected --key=value", words[i]));
      const size_t equals = words[i].find('=');
      std::string key_name = words[i].substr(2, equals == std::string::npos ? equals : equals - 2);
      const bool foreign = is_key_of(*trainer_, key_name);
      if (!foreign && key_name == "model") key_name = "model.path";
      if (!foreign && !find_config_key(key_name) && is_foreign_key(key_name)) fail_of_another(key_name);
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
    std::vector<std::string> problems = problems_;
    const std::vector<Translation> translations = take_foreign(problems);
    if (!unknown_.empty()) problems.push_back(unknown_sentence());
    refuse_all(problems);
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

  Foreign override_of(const Given& given, const std::string& name) const {
    if (given.value.null) return {.text = "", .where = given.origin, .null = true};
    return read_foreign_text(given.origin, name, given.value.text);
  }

  // A trainer's own mark decides, which is how it names the model.
  void find_trainer(const YAML::Node& document) {
    std::set<std::string> keys;
    for (const auto& entry : document) {
      const bool section = entry.first.IsScalar() && is_config_section(entry.first.Scalar()) && entry.second.IsMap();
      if (entry.first.IsScalar() && !section) keys.insert(entry.first.Scalar());
    }
    refuse_other_files(keys);
    if (const ForeignTrainer* found = trainer_of(keys)) {
      trainer_ = found;
      theirs_ = true;
    }
  }

  // Files that stand beside configurations of a training and are none.
  void refuse_other_files(const std::set<std::string>& keys) const {
    struct Other {
      const char *mark, *what;
    };
    constexpr Other kOthers[] = {{"compute_environment", "accelerate's description of processes and GPUs"},
                                 {"distributed_type", "accelerate's description of processes and GPUs"},
                                 {"zero_optimization", "a configuration of DeepSpeed"},
                                 {"gpu_count", "a description of rented machines"}};
    for (const Other& other : kOthers)
      if (keys.count(other.mark))
        fail_config(
            fmt::format("{} is {} ('{}'), and no configuration of a training; there is one process and one GPU, and "
                        "nothing of the kind is needed: give the file that names model and data",
                        name_, other.what, other.mark));
  }

  // Without a mark, one key of ours makes the file ours.
  bool has_their_keys_alone() const {
    const auto is_theirs = [](const auto& entry) { return entry.first != "skip-bad"; };
    const auto is_ours = [](const auto& entry) { return entry.first != "seed"; };
    return std::any_of(foreign_.begin(), foreign_.end(), is_theirs) &&
           std::none_of(given_.begin(), given_.end(), is_ours);
  }

  [[noreturn]] void fail_of_another(const std::string& key) const {
    const auto trainers = foreign_trainers();
    const auto owner =
        std::find_if(trainers.begin(), trainers.end(), [&](const auto* each) { return is_key_of(*each, key); });
    fail_config(fmt::format("--{} is a key of {}, and {} is {}; `megatrain train --help` lists the keys", key,
                            (*owner)->name, name_,
                            theirs_ ? fmt::format("a file of {}", trainer_->name) : "megatrain's own"));
  }

  // What keys of other trainers ask for, unless our own key is given in a place that goes over theirs.
  std::vector<Translation> take_foreign(std::vector<std::string>& problems) {
    std::set<std::string> own;
    for (const auto& [name, given] : given_) own.insert(name);
    ForeignKeys keys;
    for (const auto& [name, given] : foreign_) keys[name] = given.value;
    std::vector<std::string> found;
    const std::vector<Translation> translations = translate(*trainer_, keys, theirs_, own, name_, found);
    problems.insert(problems.end(), found.begin(), found.end());
    for (const Translation& t : translations) {
      if (t.key.empty()) continue;
      const auto own_key = given_.find(t.key);
      const ConfigText value{.text = t.text, .null = t.text == "null", .items = t.items};
      if (!t.given) {
        if (own_key == given_.end()) given_[t.key] = {value, name_, false, t.from};
        continue;
      }
      const ForeignGiven& from = foreign_.at(t.from);
      if (own_key != given_.end() && own_key->second.on_command_line == from.on_command_line)
        problems.push_back(fmt::format("{}: {} means {}, which is given too ({}); keep one", from.value.where, t.from,
                                       t.key, own_key->second.origin));
      if (own_key != given_.end() && own_key->second.on_command_line) continue;
      given_[t.key] = {value, from.value.where, from.on_command_line, t.from};
    }
    return translations;
  }

  // The nearest key of the file's trainer, or of ours, whichever the file is made of; empty: none is near.
  std::string nearest_key(const std::string& name) const {
    const std::string theirs = nearest_foreign_key(*trainer_, name), ours = nearest_config_key(name);
    if (theirs_) return theirs;
    return ours.empty() ? theirs : ours;
  }

  // One key in the form "FILE:LINE: unknown key 'a'; …", several with their lines.
  std::string unknown_sentence() const {
    constexpr const char* kHelp = "`megatrain train --help` lists the keys";
    constexpr size_t kShown = 24;
    const auto& [name, where] = unknown_.front();
    if (unknown_.size() == 1) {
      const std::string near = nearest_key(name);
      return fmt::format("{}: unknown key '{}'; {}", where, name,
                         near.empty() ? kHelp : fmt::format("did you mean '{}'?", near));
    }
    std::vector<std::string> all;
    for (const auto& [key, place] : unknown_) {
      const std::string near = nearest_key(key);
      all.push_back(fmt::format("'{}' (line {}{})", key, place.substr(place.rfind(':') + 1),
                                near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
    }
    const size_t more = all.size() > kShown ? all.size() - kShown : 0;
    all.resize(all.size() - more);
    return fmt::format("{}: {} unknown keys: {}{}; {}", where, unknown_.size(), fmt::join(all, ", "),
                       more ? fmt::format(" and {} more", more) : "", kHelp);
  }

  static void refuse_all(const std::vector<std::string>& problems) {
    if (problems.empty()) return;
    if (problems.size() == 1) fail_config(problems.front());
    std::string all = fmt::format("{} things are to be changed:", problems.size());
    for (size_t i = 0; i < problems.size(); ++i)
      all += fmt::format(" ({}) {}{}", i + 1, problems[i], i + 1 < problems.size() ? ";" : "");
    fail_config(all);
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
                         theirs_ ? fmt::format(", with {}'s defaults for what is not given", trainer_->name) : ""));
    std::istringstream lines(config.translation);
    for (std::string line; std::getline(lines, line);) log_info(line);
    for (const Translation& t : translations)
      if (!t.warning.empty())
        log_warn(fmt::format("{}: {}", t.given ? foreign_.at(t.from).value.where : name_, t.warning));
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
      } else if (prefix.empty() && is_key_of(*trainer_, name)) {
        foreign_[name] = {read_foreign(where, name, entry.second)};
      } else if (name == "model" && entry.second.IsScalar()) {
        if (!seen_.emplace("model.path", entry.first.Mark().line + 1).second)
          fail_config(fmt::format("{}: model and model.path are both given; keep one", where));
        given_["model.path"] = {{.text = entry.second.Scalar()}, where};
      } else if (name == "optim" && entry.second.IsScalar() && is_key_of(*trainer_, "optim_type")) {
        // another trainer's word for which optimizer
        foreign_["optim_type"] = {{.text = entry.second.Scalar(), .where = where}};
      } else if (!find_config_key(name) && !is_config_section(name)) {
        unknown_.emplace_back(name, where);
      } else if (is_config_section(name) && !find_config_key(name) && entry.second.IsScalar()) {
        problems_.push_back(section_sentence(where, name));
      } else if (!(is_config_section(name) && entry.second.IsNull())) {
        given_[name] = {read_value(where, known_config_key(where, name), entry.second), where};
      }
    }
  }

  Foreign read_foreign(const std::string& where, const std::string& name, const YAML::Node& node) const {
    Foreign value{.where = where};
    value.null = node.IsNull();
    if (node.IsScalar()) return read_foreign_text(where, name, node.Scalar());
    const bool list = takes_list(*trainer_, name), mapping = takes_mapping(*trainer_, name);
    if ((node.IsSequence() && !list) || (node.IsMap() && !mapping))
      fail_config(fmt::format("{}: {} is a {}, expected {}", where, name, node.IsMap() ? "section" : "list",
                              list ? "a value or a list of values" : "one value"));
    if (node.IsMap()) {
      value.text = node.size() == 0 ? "{}" : "{…}";
      for (const auto& entry : node)
        value.entries[entry.first.IsScalar() ? entry.first.Scalar() : "?"] =
            entry.second.IsScalar() ? entry.second.Scalar() : "{…}";
    }
    for (const YAML::Node& element : node.IsSequence() ? node : YAML::Node(YAML::NodeType::Sequence)) {
      if (!element.IsScalar() && !mapping)
        fail_config(fmt::format("{}: {} holds something other than plain values, expected a value or a list of values",
                                where, name));
      value.text += (value.text.empty() ? "" : ",") + (element.IsScalar() ? element.Scalar() : "{…}");
      ForeignItem& item = value.items.emplace_back();
      item.where = element.Mark().is_null() ? where : at(element);
      flatten(element, "", item.entries);
    }
    if (node.IsSequence() && node.size() == 0) value.text = "none";
    return value;
  }

  // Nested names dotted, lists as their elements with commas between.
  static void flatten(const YAML::Node& node, const std::string& name, std::map<std::string, std::string>& into) {
    if (node.IsMap()) {
      for (const auto& entry : node)
        flatten(entry.second, (name.empty() ? "" : name + ".") + (entry.first.IsScalar() ? entry.first.Scalar() : "?"),
                into);
    } else if (node.IsSequence()) {
      for (const YAML::Node& element : node)
        into[name] += (into[name].empty() ? "" : ",") + (element.IsScalar() ? element.Scalar() : "{…}");
    } else if (node.IsScalar()) {
      into[name] = node.Scalar();
    }
  }

  // The mapping may also be a text, as on the command line.
  Foreign read_foreign_text(const std::string& where, const std::string& name, const std::string& text) const {
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
  std::map<std::string, ForeignGiven> foreign_;                 // keys of other trainers
  const ForeignTrainer* trainer_ = &default_foreign_trainer();  // whose keys are read beside ours
  bool theirs_ = false;                                         // the file is one of the trainer's
  std::vector<std::pair<std::string, std::string>> unknown_;    // keys of the file with where they stand
  std::vector<std::string> problems_;                           // of its sections
  std::map<std::string, int> seen_;                             // keys and sections of the file, with their line
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
  return find_config_key(name) != nullptr || name == "model" || is_foreign_key(name);
}

}  // namespace megatrain
