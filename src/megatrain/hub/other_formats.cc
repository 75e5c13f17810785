#include "megatrain/hub/other_formats.h"

#include <algorithm>
#include <filesystem>

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

void refuse_quantised(const nlohmann::json& config, const std::string& path) {
  constexpr const char* kField = "quantization_config";
  if (!config.is_object() || !config.contains(kField) || !config.at(kField).is_object()) return;
  const nlohmann::json& field = config.at(kField);
  const bool named = field.contains("quant_method") && field.at("quant_method").is_string();
  if (!named || field.at("quant_method") == "mxfp4") return;
  std::string bits;
  if (field.contains("bits") && field.at("bits").is_number_integer())
    bits = fmt::format(", {} bits", field.at("bits").get<int64_t>());
  else if (field.value("load_in_4bit", nlohmann::json()) == true)
    bits = ", 4 bits";
  else if (field.value("load_in_8bit", nlohmann::json()) == true)
    bits = ", 8 bits";
  fail_input(fmt::format(
      "{}: '{}' says that the weights are quantised ({}{}), and training needs the bf16 or fp32 weights that "
      "they were made from: use the base model that is named on this model's page: hf download "
      "ORG/NAME",
      path, kField, printable(field.at("quant_method").get<std::string>()), bits));
}

}  // namespace megatrain
