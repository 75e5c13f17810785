#include "megatrain/config/config_file.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/config/config_keys.h"
#include "megatrain/config/config_text.h"
#include "megatrain/foreign/foreign_yaml.h"
#include "megatrain/io/yaml.h"

namespace megatrain {
namespace {

// Refuses files that are often found beside a training configuration but are not one.
void refuse_other_files(const std::string& file, const std::set<std::string>& keys) {
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
          fmt::format("{} is {} ('{}'), not a training configuration; there is one process and one GPU, so it is not "
                      "needed: give the file that names model and data",
                      file, other.what, other.mark));
}

class FileReader {
 public:
  explicit FileReader(GivenKeys& given) : given_(given) {}

  void read(const YAML::Node& document) {
    find_trainer(document);
    read_map(document, "");
    given_.theirs = given_.theirs || has_their_keys_alone();
  }

 private:
  std::string at(const YAML::Node& node) const { return fmt::format("{}:{}", given_.file, node.Mark().line + 1); }

  // Recognises a trainer's file by its mark, the key with which it names the model.
  void find_trainer(const YAML::Node& document) {
    std::set<std::string> keys;
    for (const auto& entry : document) {
      const bool section = entry.first.IsScalar() && is_config_section(entry.first.Scalar()) && entry.second.IsMap();
      if (entry.first.IsScalar() && !section) keys.insert(entry.first.Scalar());
    }
    refuse_other_files(given_.file, keys);
    if (const ForeignTrainer* found = trainer_of(keys)) {
      given_.trainer = found;
      given_.theirs = true;
    }
  }

  // Without a mark, a single key of ours makes it our file. `skip-bad` and `seed` do not count on either side.
  bool has_their_keys_alone() const {
    const auto is_theirs = [](const auto& entry) { return entry.first != "skip-bad"; };
    const auto is_ours = [](const auto& entry) { return entry.first != "seed"; };
    return std::any_of(given_.foreign.begin(), given_.foreign.end(), is_theirs) &&
           std::none_of(given_.own.begin(), given_.own.end(), is_ours);
  }

  void read_map(const YAML::Node& map, const std::string& prefix) {
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) fail_config(fmt::format("{}: expected a plain key name", at(entry.first)));
      const std::string name = prefix + entry.first.Scalar();
      const std::string where = at(entry.first);
      const auto [first, fresh] = seen_.emplace(name, entry.first.Mark().line + 1);
      if (!fresh)
        fail_config(
            fmt::format("{}: key '{}' is given twice (first on line {}); keep one", where, name, first->second));
      if (is_config_section(name) && entry.second.IsMap())
        read_map(entry.second, name + ".");
      else if (prefix.empty() && is_key_of(*given_.trainer, name))
        given_.foreign[name] = {read_foreign(*given_.trainer, given_.file, where, name, entry.second)};
      else if (!read_model_or_optimizer(name, where, entry))
        read_own(name, where, entry.second);
    }
  }

  // Handles `model` or `optimizer` given as a plain name where our format has a section.
  template <class Entry>
  bool read_model_or_optimizer(const std::string& name, const std::string& where, const Entry& entry) {
    if (!entry.second.IsScalar()) return false;
    if (name == "model") {
      if (!seen_.emplace("model.path", entry.first.Mark().line + 1).second)
        fail_config(fmt::format("{}: model and model.path are both given; keep one", where));
      given_.own["model.path"] = {{.text = entry.second.Scalar()}, where};
      return true;
    }
    const std::string theirs = known_foreign_name(name);
    const bool optimizer = theirs != name && is_key_of(*given_.trainer, theirs);
    if (optimizer) given_.foreign[theirs] = {{.text = entry.second.Scalar(), .where = where}};
    return optimizer;
  }

  void read_own(const std::string& name, const std::string& where, const YAML::Node& value) {
    const bool section = is_config_section(name), known = find_config_key(name) != nullptr;
    if (!known && !section)
      given_.unknown.emplace_back(name, where);
    else if (section && !known && value.IsScalar())
      given_.problems.push_back(section_sentence(where, name));
    else if (!section || !value.IsNull())
      given_.own[name] = {config_text(where, known_config_key(where, name), value), where};
  }

  GivenKeys& given_;
  std::map<std::string, int> seen_;  // keys and sections of the file with their lines
};

}  // namespace

void read_config_file(const std::string& text, GivenKeys& given) {
  try {
    const YAML::Node document = parse_yaml(text, given.file);
    if (document.IsNull()) return;
    if (!document.IsMap())
      fail_config(fmt::format("{}:{}: expected 'key: value' lines", given.file, document.Mark().line + 1));
    FileReader(given).read(document);
  } catch (const YAML::Exception& e) {
    fail_config(fmt::format("{}:{}: not valid YAML: {}", given.file, e.mark.line + 1, e.msg));
  }
}

}  // namespace megatrain
