#include "megatrain/model/presets.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>

#include "megatrain/base/nearest_name.h"
#include "megatrain/model/family.h"

namespace megatrain {

namespace {

using Words = std::vector<std::string>;

// "qwen", "2.5" and "7b" of "Qwen_2.5-7B": what stands between dashes, in lower case.
Words words_of(const std::string& name) {
  Words words(1);
  for (const char c : name) {
    if (c == '-' || c == '_' || c == ' ') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  std::erase(words, "");
  return words;
}

std::string joined(const Words& words) {
  std::string all;
  for (const std::string& word : words) all += word;
  return all;
}

bool all_digits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Words of releases that do not change the shape: how they were trained, their date, their version.
bool is_of_release(const std::string& word) {
  static const std::set<std::string> kWords = {"instruct", "it",   "base",    "chat",   "hf",   "thinking", "reasoning",
                                               "pt",       "text", "preview", "coder",  "math", "think",    "sft",
                                               "dpo",      "fp8",  "bf16",    "hybrid", "awq",  "gptq"};
  const bool date = word.size() == 4 && all_digits(word);
  const bool version = word.size() > 2 && word.front() == 'v' && word[1] == '0' && word[2] == '.';
  return date || version || kWords.contains(word);
}

// Releases whose names differ from their presets' by more than such words.
struct Release {
  const char *name, *preset;
};
constexpr Release kReleases[] = {
    {"llama-3.1-8b", "llama3-8b"},
    {"llama-3.2-1b", "llama3-1b"},
    {"llama-3.2-3b", "llama3-3b"},
    {"llama-3.1-70b", "llama3-70b"},
    {"llama-3.3-70b", "llama3-70b"},
    {"mistral-small-3.1-24b", "mistral-small-24b"},
    {"mistral-small-3.2-24b", "mistral-small-24b"},
    {"exaone-4.0-1.2b", "exaone4-1.2b"},
    {"exaone-4.0-32b", "exaone4-32b"},
    {"glm-4.5", "glm4.5-355b"},
    {"glm-4.6", "glm4.5-355b"},
    {"olmo-3.1-32b", "olmo3-32b"},
    {"deepseek-r1", "deepseek-v3"},
    {"deepseek-v3.1", "deepseek-v3"},
};

// "qwen2.57b" of "Qwen/Qwen2.5-7B-Instruct".
std::string plain_release(const std::string& name) {
  const size_t slash = name.rfind('/');
  Words words = words_of(slash == std::string::npos ? name : name.substr(slash + 1));
  if (words.size() > 1 && words.front() == "meta") words.erase(words.begin());
  Words kept;
  std::copy_if(words.begin(), words.end(), std::back_inserter(kept),
               [](const std::string& word) { return !is_of_release(word); });
  return joined(kept);
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    for (const Family::Preset& preset : family.presets) names.push_back(preset.name);
  }
  return names;
}

std::string preset_of(const std::string& name) {
  const std::vector<std::string> names = preset_names();
  const std::string own = joined(words_of(name)), release = plain_release(name);
  for (const std::string& preset : names) {
    if (joined(words_of(preset)) == own) return preset;
  }
  for (const std::string& preset : names) {
    if (plain_release(preset) == release) return preset;
  }
  for (const Release& known : kReleases) {
    if (plain_release(known.name) == release && std::ranges::count(names, known.preset) > 0) return known.preset;
  }
  return "";
}

std::vector<std::string> presets_meant(const std::string& name) {
  if (const std::string preset = preset_of(name); !preset.empty()) return {preset};
  const Words asked = words_of(name);
  std::vector<std::string> found;
  for (const std::string& preset : preset_names()) {
    const Words words = words_of(preset);
    const auto has = [&](const std::string& word) {
      return std::ranges::any_of(words, [&](const std::string& of_preset) {
        return of_preset == word ||
               (!std::isdigit(static_cast<unsigned char>(word.front())) && of_preset.starts_with(word));
      });
    };
    if (!asked.empty() && std::ranges::all_of(asked, has)) found.push_back(preset);
  }
  return found;
}

std::string nearest_preset(const std::string& name) {
  const size_t slash = name.rfind('/');
  NearestName nearest(joined(words_of(slash == std::string::npos ? name : name.substr(slash + 1))));
  for (const std::string& preset : preset_names()) nearest.consider(joined(words_of(preset)), preset);
  for (const Release& known : kReleases) nearest.consider(joined(words_of(known.name)), known.preset);
  return nearest.found();
}

std::optional<nlohmann::json> preset_config(const std::string& name) {
  const std::string meant = preset_of(name);
  for (const Family& family : families()) {
    for (const Family::Preset& preset : family.presets) {
      if (preset.name == meant) return preset.config;
    }
  }
  return {};
}

}  // namespace megatrain
