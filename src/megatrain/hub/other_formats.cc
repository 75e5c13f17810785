#include "megatrain/hub/other_formats.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/shell_word.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

bool stands_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool has_ending(const fs::path& path, std::initializer_list<const char*> endings) {
  const std::string ending = path.extension().string();
  return std::any_of(endings.begin(), endings.end(), [&](const char* each) { return ending == each; });
}

[[noreturn]] void refuse_gguf(const std::string& path) {
  fail_input(
      fmt::format("{} is GGUF, an inference format (llama.cpp) whose weights are mostly quantised; train the Hugging "
                  "Face model that it was made from, named on its page: hf download ORG/NAME",
                  path));
}

[[noreturn]] void refuse_adapter(const std::string& directory, const std::string& file) {
  const nlohmann::json config = read_json_file(file);
  const bool named = config.is_object() && config.contains("base_model_name_or_path") &&
                     config.at("base_model_name_or_path").is_string();
  const std::string base = named ? config.at("base_model_name_or_path").get<std::string>() : "its base model";
  fail_input(fmt::format(
      "{0} is an adapter (LoRA) of {1}, not a whole model; model.adapter: {0} trains it further, and "
      "'generate', 'chat', 'serve' and 'eval' take it. To train all weights, merge it first: megatrain merge "
      "{2} {3} --out {4}, and give {0}-merged as the model",
      directory, base, named ? shell_word(base) : "BASE", shell_word(directory), shell_word(directory + "-merged")));
}

}  // namespace

void refuse_other_formats(const std::string& path) {
  std::error_code ignored;
  if (!stands_there(path)) return;
  if (!fs::is_directory(path, ignored)) {
    if (has_ending(path, {".gguf"})) refuse_gguf(path);
    if (has_ending(path, {".bin", ".pt", ".pth", ".ckpt"}))
      fail_input(
          fmt::format("{} is a pickled checkpoint, which is not read; give the directory of the model; if that has no "
                      "safetensors: python3 -c 'from transformers import AutoModelForCausalLM as M; "
                      "M.from_pretrained(\"DIR\").save_pretrained(\"DIR-safetensors\")'",
                      path));
    return;
  }
  const fs::path directory = path;
  std::string plain = path;
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  if (stands_there(directory / "config.resolved.yaml")) return;  // a run, whatever else is there
  // Trainers put the base model's config.json beside an adapter. Beside complete weights the adapter would be ignored.
  if (const fs::path file = directory / "adapter_config.json"; stands_there(file)) refuse_adapter(plain, file.string());
  if (stands_there(directory / "config.json")) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored))
    if (has_ending(entry.path(), {".gguf"})) refuse_gguf(entry.path().string());
}

namespace {

using nlohmann::json;

// What a quantization_config says beside the name of its method: ", 4 bits, nf4".
std::string quantisation_details(const json& field) {
  std::string details;
  if (field.contains("bits") && field.at("bits").is_number_integer()) {
    details = fmt::format(", {} bits", field.at("bits").get<int64_t>());
  } else if (field.value("load_in_4bit", json()) == true) {
    details = ", 4 bits";
    if (const json type = field.value("bnb_4bit_quant_type", json()); type.is_string())
      details += ", " + printable(type.get<std::string>());
  } else if (field.value("load_in_8bit", json()) == true) {
    details = ", 8 bits";
  }
  for (const char* key : {"format", "quant_algo"}) {  // of compressed-tensors and of NVIDIA's ModelOpt
    if (const json name = field.value(key, json()); name.is_string())
      details += ", " + printable(name.get<std::string>());
  }
  return details;
}

// Fields of fp8, and their values in releases that are read. An absent field has the value that is read.
std::string unlike_supported_fp8(const json& field) {
  const std::pair<const char*, std::vector<json>> supported[] = {
      {"fmt", {"e4m3"}},
      {"activation_scheme", {"dynamic"}},
      {"weight_block_size", {{128, 128}}},
      {"scale_fmt", {nullptr, "float", "ue8m0"}},  // ue8m0: powers of two, which files may hold in fp32
      {"expert_dtype", {nullptr, "fp8"}},
      {"modules_to_convert", {nullptr, json::array()}}};
  for (const auto& [key, values] : supported) {
    if (!field.contains(key) || std::ranges::count(values, field.at(key)) > 0) continue;
    return fmt::format(", {} {}", key, printable(field.at(key).dump().substr(0, 80)));
  }
  return "";
}

// The base model that the front matter of a model page names: "base_model: ORG/NAME", or a list on the lines after it.
std::string base_model_of(const fs::path& directory) {
  constexpr int64_t kMost = 1 << 20;
  std::string text;
  try {
    text = read_text_file((directory / "README.md").string(), kMost);
  } catch (const Error&) {
    return "";  // there is none, or none that can be read
  }
  constexpr std::string_view kKey = "\nbase_model:", kBetween = " \t\r\n-\"'";
  const size_t end = text.find("\n---", 1), at = text.find(kKey);
  if (!text.starts_with("---") || at == std::string::npos || at >= end) return "";
  const size_t begin = text.find_first_not_of(kBetween, at + kKey.size());
  if (begin == std::string::npos) return "";
  const std::string name = text.substr(begin, text.find_first_of(" \t\r\n\"'", begin) - begin);
  const bool plain = std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '.' || c == '-' || c == '_';
  });
  return plain && std::ranges::count(name, '/') == 1 ? name : "";
}

}  // namespace

void refuse_quantised(const json& config, const std::string& path) {
  constexpr const char* kField = "quantization_config";
  if (!config.is_object() || !config.contains(kField) || !config.at(kField).is_object()) return;
  const json& field = config.at(kField);
  const bool named = field.contains("quant_method") && field.at("quant_method").is_string();
  if (!named || field.at("quant_method") == "mxfp4") return;
  const bool fp8 = field.at("quant_method") == "fp8";
  const std::string details = fp8 ? unlike_supported_fp8(field) : quantisation_details(field);
  if (fp8 && details.empty()) return;
  const std::string base = base_model_of(fs::path(path).parent_path());
  fail_input(fmt::format(
      "{}: '{}' says that the weights are quantised ({}{}), and training needs the bf16 or fp32 weights that "
      "they were made from, or a release in MXFP4 or in fp8 (e4m3, dynamic activations, blocks of 128 x 128): use the "
      "base model that {}: hf download {}",
      path, kField, printable(field.at("quant_method").get<std::string>()), details,
      base.empty() ? "is named on this model's page" : "README.md names", base.empty() ? "ORG/NAME" : base));
}

}  // namespace megatrain
