#include "megatrain/model/fp8_tensors.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/hub/other_formats.h"
#include "megatrain/model/parts/config_reader.h"
#include "megatrain/model/trained/module_pattern.h"
#include "megatrain/tensor/block_operand.h"
#include "megatrain/tensor/fp8.h"

namespace megatrain {

namespace {

constexpr const char* kField = "quantization_config";
constexpr const char* kAdvice =
    "of fp8 megatrain reads F8_E4M3 with a scale for each block of 128 x 128; use the base model in bf16";

bool is_fp8(StoredType type) { return type == StoredType::f8_e4m3 || type == StoredType::f8_e5m2; }

// The matrices of layers, each in a tensor of its own.
bool may_be_fp8(const TensorSpec& tensor) {
  return tensor.role == TensorRole::matrix && tensor.stored.name.empty() && tensor.name.starts_with("model.layers.");
}

// Other releases have scales of other names: one of a tensor or of each row.
std::string other_scales(const ModelFiles& files, const std::string& name) {
  for (const char* suffix : {"_scale", "_scale_2", "_packed"}) {
    if (files.find(name + suffix) != nullptr) return fmt::format(", but {}{}, which is another format", name, suffix);
  }
  return "";
}

}  // namespace

const StoredTensor* find_fp8_scales(const ModelFiles& files, const TensorSpec& tensor) {
  const std::string& name = tensor.stored.name.empty() ? tensor.name : tensor.stored.name;
  const std::string scales_name = name + "_scale_inv";
  const StoredTensor *codes = files.find(name), *scales = files.find(scales_name);
  if (codes == nullptr || (!is_fp8(codes->dtype) && scales == nullptr)) return nullptr;
  const std::string found =
      fmt::format("{}: tensor {} is {}", files.file_of(*codes), name, stored_type_name(codes->dtype));
  if (!is_fp8(codes->dtype))
    fail_input(fmt::format("{}, but has scales {} as if it were in fp8; remove the wrong one.", found, scales_name));
  if (codes->dtype != StoredType::f8_e4m3) fail_input(fmt::format("{}; {}.", found, kAdvice));
  if (!may_be_fp8(tensor))
    fail_input(
        fmt::format("{}; in fp8 megatrain reads only the matrices of layers that have tensors of their own; use the "
                    "base model in bf16.",
                    found));
  const std::vector<int64_t> shape = {tensor.rows, tensor.cols},
                             blocks = {ceil_div(tensor.rows, kFp8Block), ceil_div(tensor.cols, kFp8Block)};
  if (codes->shape != shape)
    fail_input(
        fmt::format("{} of shape {}, but config.json asks for {}; check that config.json and weights belong "
                    "together.",
                    found, format_shape(codes->shape), format_shape(shape)));
  if (scales == nullptr)
    fail_input(fmt::format("{}, and there is no {}{}; {}.", found, scales_name, other_scales(files, name), kAdvice));
  if ((scales->dtype != StoredType::f32 && scales->dtype != StoredType::bf16) || scales->shape != blocks)
    fail_input(
        fmt::format("{} of shape {}, but its scales {} are {} of shape {}, expected F32 or BF16 of shape {}; {}.",
                    found, format_shape(shape), scales_name, stored_type_name(scales->dtype),
                    format_shape(scales->shape), format_shape(blocks), kAdvice));
  return scales;
}

std::optional<std::vector<std::string>> read_fp8_exceptions(const ConfigReader& config) {
  if (!config.has(kField)) return std::nullopt;
  refuse_quantised(config.object(), config.where());
  const auto refuse = [&](const std::string& what) {
    fail_input(fmt::format("{}: '{}' {}; give a model whose weights are not quantised", config.where(), kField, what));
  };
  if (!config.at(kField).is_object()) refuse("is " + config.at(kField).dump().substr(0, 80));
  const ConfigReader fp8(config.at(kField), fmt::format("{}: {}", config.where(), kField));
  const std::string method = fp8.string("quant_method", "");
  if (method != "fp8")
    refuse(method.empty() ? "does not name its quant_method"
                          : fmt::format("is {}, which is not read for this architecture", method));
  check_fields_of(fp8, {"quant_method", "fmt", "activation_scheme", "weight_block_size", "scale_fmt", "dequantize",
                        "modules_to_not_convert", "ignored_layers"});
  std::vector<std::string> exceptions;
  for (const char* key : {"modules_to_not_convert", "ignored_layers"}) {
    if (!fp8.has(key)) continue;
    const nlohmann::json& names = fp8.at(key);
    if (!names.is_array() || std::ranges::any_of(names, [](const auto& name) { return !name.is_string(); }))
      fail_input(fmt::format("{}: '{}' is {}; expected a list of names of modules", fp8.where(), key,
                             names.dump().substr(0, 80)));
    for (const auto& name : names) exceptions.push_back(name.get<std::string>());
  }
  return exceptions;
}

bool is_declared_fp8(const ModelConfig& config, const TensorSpec& tensor) {
  if (!config.fp8_exceptions || !may_be_fp8(tensor) || tensor.operand == BlockOperand::router) return false;
  const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
  // As transformers matches: the end of a name, its beginning up to the border of a module, or a regular expression for
  // that.
  return std::ranges::none_of(*config.fp8_exceptions, [&](const std::string& exception) {
    if (module.ends_with(exception) || module.starts_with(exception + ".")) return true;
    return is_module_pattern(exception) &&
           ModulePattern("(?:" + exception + ")(?:(?<=\\.)|(?=\\.|$)).*", "modules_to_not_convert").matches(module);
  });
}

}  // namespace megatrain
