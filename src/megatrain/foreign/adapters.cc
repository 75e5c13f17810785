#include "megatrain/foreign/adapters.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/among.h"
#include "megatrain/base/error.h"
#include "megatrain/foreign/methods.h"
#include "megatrain/foreign/sentences.h"
#include "megatrain/io/json.h"

namespace megatrain {
namespace {

constexpr const char* kOfAdapterFile = "model.adapter has its own";
constexpr const char* kFactorySettings[] = {"lora_rank", "lora_alpha",  "lora_dropout",      "use_rslora",
                                            "use_dora",  "lora_target", "additional_target", "adapter_name_or_path"};
constexpr const char* kAxolotlSettings[] = {"lora_r",
                                            "lora_alpha",
                                            "lora_dropout",
                                            "lora_target_linear",
                                            "lora_target_modules",
                                            "lora_target_parameters",
                                            "lora_modules_to_save",
                                            "peft_trainable_token_indices",
                                            "peft_use_rslora",
                                            "peft_use_dora",
                                            "peft_init_lora_weights",
                                            "peft_layers_to_transform"};

const Foreign* value_of(const ForeignKeys& given, const char* name) {
  const auto found = given.find(name);
  return found == given.end() || found->second.null ? nullptr : &found->second;
}

// There the base is quantised to fit on the GPU.
void base_of(ForeignReader& r, const char* name) {
  const Foreign* value = r.find(name);
  if (!value || !is_on(*value)) return;
  const Translation* precision = r.translated("precision");
  r.idle(name, fmt::format("the base is not quantised: it stays {}, frozen and streamed",
                           precision && !r.own("precision") ? precision->text : "in the format of precision"));
}

void add_modules(ForeignReader& r, const char* from, const char* key) {
  const Foreign* value = r.find(from);
  if (!value || !is_on(*value)) return r.idle(from, "there are none");
  Translation& t = r.add(from, "", key, value->items.empty() ? value->text : "");
  for (const ForeignItem& item : value->items) t.items.push_back(item.entries);
}

// A list of ids, or a mapping with one for each module.
void add_token_indices(ForeignReader& r, const char* from, const char* key) {
  const Foreign* value = r.find(from);
  if (!value || value->entries.empty()) return add_modules(r, from, key);
  Translation& t = r.add(from, "", key, "");
  const nlohmann::json modules = nlohmann::json::parse(value->json);
  for (const auto& [module, ids] : modules.items()) {
    std::string text = ids.is_array() ? "" : ids.dump();
    for (const nlohmann::json& id : ids.is_array() ? ids : nlohmann::json::array())
      text += (text.empty() ? "" : ",") + id.dump();
    t.items.push_back({{module, text}});
  }
}

void add_number(ForeignReader& r, const char* from, const std::string& standard, const char* key) {
  const Foreign* value = r.find(from);
  r.add(from, standard.c_str(), key, value ? foreign_number(from, *value) : standard);
}

void add_flag(ForeignReader& r, const char* from, const char* key) {
  r.add(from, "false", key, r.flag(from) ? "true" : "false");
}

std::vector<std::string> names_in(const Foreign& value) {
  std::vector<std::string> names;
  for (const ForeignItem& item : value.items) names.push_back(item.entries.at(""));
  if (names.empty()) names.push_back(value.text);
  return names;
}

// A name in a regular expression.
std::string quoted_name(const std::string& name) {
  std::string quoted;
  for (const char c : name) quoted += c == '.' ? std::string("\\.") : std::string(1, c);
  return quoted;
}

// PEFT takes the modules with these names in the layers of these numbers. A regular expression says the same.
std::string modules_in_layers(const Foreign& modules, const Foreign& layers) {
  std::vector<std::string> names, numbers;
  for (const std::string& name : names_in(modules)) {
    if (name.find_first_of("\\^$*+?()[]{}|,") != std::string::npos)
      fail_config(
          fmt::format("{}: peft_layers_to_transform needs lora_target_modules as a list of names, and one is '{}'; "
                      "name the layers in the regular expression instead",
                      layers.where, name));
    names.push_back(quoted_name(name));
  }
  for (const std::string& number : names_in(layers))
    numbers.push_back(foreign_whole("peft_layers_to_transform", {.text = number, .where = layers.where}));
  return fmt::format(R"(.*\.(?:{})\.(?:.*\.)?(?:{}))", fmt::join(numbers, "|"), fmt::join(names, "|"));
}

void axolotl_targets(ForeignReader& r) {
  const Foreign *modules = r.find("lora_target_modules"), *layers = r.find("peft_layers_to_transform");
  const Foreign* parameters = r.find("lora_target_parameters");
  // [0] names the first layer
  const bool linear = r.flag("lora_target_linear"), some = layers && (is_on(*layers) || layers->text == "0");
  if (modules && !is_on(*modules)) modules = nullptr;
  if (parameters && is_on(*parameters) && !linear && !modules && !r.own("adapter.targets")) {
    r.add("lora_target_modules", "", "adapter.targets", "null");
    return r.idle("peft_layers_to_transform", "every layer has adapters");
  }
  if (!linear && !modules && !r.own("adapter.targets"))
    fail_config(
        fmt::format("{}: adapter is {}, and no key names the modules that get one; give lora_target_linear: "
                    "true, or lora_target_modules",
                    r.given().at("adapter").where, r.text("adapter", "")));
  if (linear) {
    if (some)
      fail_config(
          fmt::format("{}: peft_layers_to_transform needs lora_target_modules as a list of names; "
                      "lora_target_linear: true has none",
                      layers->where));
    for (const std::string& name : modules ? names_in(*modules) : std::vector<std::string>{})
      if (name == "lm_head" || name == "embed_tokens")
        fail_config(
            fmt::format("{}: lora_target_modules has {}, which cannot have an adapter; lora_modules_to_save "
                        "trains it whole",
                        modules->where, name));
    r.add("lora_target_linear", "", "adapter.targets", "all-linear");
    return r.idle("lora_target_modules", "lora_target_linear includes them");
  }
  r.idle("lora_target_linear", "lora_target_modules decides");
  if (!modules || !some) {
    r.idle("peft_layers_to_transform", "every layer has adapters");
    if (!modules) return r.idle("lora_target_modules", "adapter.targets decides");
    return add_modules(r, "lora_target_modules", "adapter.targets");
  }
  r.add("lora_target_modules", "", "adapter.targets", modules_in_layers(*modules, *layers));
  r.idle("peft_layers_to_transform", "adapter.targets names these layers");
}

void axolotl_init(ForeignReader& r) {
  const Foreign* init = r.find("peft_init_lora_weights");
  if (!init) return r.idle("peft_init_lora_weights", "as in PEFT");
  if (init->text == "gaussian")
    r.add("peft_init_lora_weights", "", "adapter.init", "gaussian");
  else if (init->text == "true" || init->text == "True")
    r.add("peft_init_lora_weights", "", "adapter.init", "kaiming");
  else
    fail_config(fmt::format("{}: peft_init_lora_weights is '{}', expected true or gaussian: leave the key out",
                            init->where, init->text));
}

// Axolotl has no default for lora_r. Those of lora_alpha and lora_dropout are PEFT's.
void axolotl_settings(ForeignReader& r) {
  r.attempt([&] {
    if (r.find("lora_r"))
      r.add("lora_r", "", "adapter.rank", foreign_whole("lora_r", *r.find("lora_r")));
    else if (!r.own("adapter.rank"))
      fail_config(
          fmt::format("{}: adapter is {}, and no lora_r gives its rank, for which Axolotl has no default; "
                      "give lora_r",
                      r.given().at("adapter").where, r.text("adapter", "")));
  });
  r.attempt([&] { add_number(r, "lora_alpha", "8", "adapter.alpha"); });
  r.attempt([&] { add_number(r, "lora_dropout", "0", "adapter.dropout"); });
  r.attempt([&] { axolotl_targets(r); });
  add_modules(r, "lora_target_parameters", "adapter.target_parameters");
  r.attempt([&] { add_flag(r, "peft_use_rslora", "adapter.rslora"); });
  r.attempt([&] { add_flag(r, "peft_use_dora", "adapter.dora"); });
  r.attempt([&] { axolotl_init(r); });
  add_modules(r, "lora_modules_to_save", "adapter.also_train");
  add_token_indices(r, "peft_trainable_token_indices", "adapter.trainable_token_indices");
}

// In a file of ours, any of these keys asks for adapters, as ours do.
bool factory_trains_adapters(const ForeignReader& r) {
  if (r.find("finetuning_type")) return r.text("finetuning_type", "") == "lora";
  return r.theirs() || r.own("adapter.rank") || r.own("model.adapter") ||
         std::any_of(std::begin(kFactorySettings), std::end(kFactorySettings),
                     [&](const char* name) { return r.find(name) != nullptr; });
}

void factory_settings(ForeignReader& r) {
  const bool defaults = r.theirs() || r.is_given("finetuning_type");
  const auto stands = [&](const char* name) { return defaults || r.is_given(name); };
  const int64_t rank = r.count("lora_rank", 8);
  if (stands("lora_rank")) r.add("lora_rank", "8", "adapter.rank", std::to_string(rank));
  r.attempt([&] {
    if (stands("lora_alpha")) add_number(r, "lora_alpha", std::to_string(2 * rank), "adapter.alpha");
  });
  r.attempt([&] {
    if (stands("lora_dropout")) add_number(r, "lora_dropout", "0", "adapter.dropout");
  });
  if (r.text("lora_target", "all") != "all")
    add_modules(r, "lora_target", "adapter.targets");
  else if (stands("lora_target"))
    r.add("lora_target", "all", "adapter.targets", "all-linear");
  r.attempt([&] {
    if (stands("use_rslora")) add_flag(r, "use_rslora", "adapter.rslora");
  });
  r.attempt([&] {
    if (stands("use_dora")) add_flag(r, "use_dora", "adapter.dora");
  });
  add_modules(r, "additional_target", "adapter.also_train");
}

}  // namespace

bool llamafactory_lora(const ForeignKeys& given) {
  const Foreign* type = value_of(given, "finetuning_type");
  return !type || type->text == "lora";
}

bool llamafactory_no_lora(const ForeignKeys& given) { return !llamafactory_lora(given); }

bool axolotl_lora(const ForeignKeys& given) {
  const Foreign* type = value_of(given, "adapter");
  return type && (type->text == "lora" || type->text == "qlora");
}

bool axolotl_no_lora(const ForeignKeys& given) { return !axolotl_lora(given); }

void refuse_unread_lora(const ForeignTrainer& trainer, const ForeignKeys& given) {
  for (const auto& [name, value] : given) {
    const bool of_lora = std::any_of(trainer.parameters.begin(), trainer.parameters.end(),
                                     [&, &name = name](const MethodParameter& each) {
                                       return std::string(each.of) == "LoRA" && matches(each.name, name);
                                     });
    if (of_lora && is_on(value) && !among(trainer.ruled, name) && !find_idle(trainer, name))
      refuse_method(name, value, "another form of LoRA", "leave the key out");
  }
}

void refuse_several_adapters(const ForeignKeys& given) {
  const Foreign *directory = value_of(given, "adapter_name_or_path"), *fresh = value_of(given, "create_new_adapter");
  if (!directory) return;
  constexpr const char* kMerge = "merge the other into the model (megatrain merge), and train that";
  if (directory->items.size() > 1 || directory->text.find(',') != std::string::npos)
    refuse_method("adapter_name_or_path", *directory, "several adapters", kMerge);
  if (fresh && foreign_flag("create_new_adapter", *fresh))
    refuse_method("create_new_adapter", *fresh, "a new adapter over another", kMerge);
}

void llamafactory_adapter(ForeignReader& r) {
  if (!factory_trains_adapters(r)) {
    // The key alone in a file of ours. refuse_methods cannot tell that it trains all weights.
    if (const Foreign* bits = r.find("quantization_bit"); bits && is_on(*bits) && !r.find("finetuning_type"))
      refuse_method("quantization_bit", *bits, "a quantised model", "give adapter.rank, or leave the key out");
    return;
  }
  for (const char* name : {"quantization_bit", "quantization_method", "quantization_type", "double_quantization",
                           "quantization_device_map"})
    base_of(r, name);
  r.idle("create_new_adapter", "there is one adapter");
  const Foreign* directory = r.find("adapter_name_or_path");
  if (directory) r.add("adapter_name_or_path", "", "model.adapter", directory->text);
  if (!directory && !r.own("model.adapter")) return factory_settings(r);
  for (const char* name : kFactorySettings)
    if (std::string(name) != "adapter_name_or_path") r.idle(name, kOfAdapterFile);
}

void axolotl_adapter(ForeignReader& r) {
  const Foreign* kind = r.find("adapter");
  if (!kind || !is_on(*kind))
    return r.idle("adapter", r.own("adapter.rank") ? "adapter.rank decides" : "all weights are trained");
  if (!axolotl_lora(r.given()))
    fail_config(fmt::format("{}: adapter is '{}', expected lora, qlora or null", kind->where, kind->text));
  r.idle("adapter", "the weights are frozen, and adapters are trained");
  for (const char* name : {"load_in_4bit", "load_in_8bit", "quantize_moe_experts", "bnb_config_kwargs"})
    base_of(r, name);
  // PEFT switches it off for linear layers.
  r.idle("lora_fan_in_fan_out", "no weight is stored transposed");
  const Foreign* directory = r.find("lora_model_dir");
  if (directory)
    r.add("lora_model_dir", "", "model.adapter", directory->text);
  else
    r.idle("lora_model_dir", "a new adapter is trained");
  if (!directory && !r.own("model.adapter")) return axolotl_settings(r);
  for (const char* name : kAxolotlSettings) r.idle(name, kOfAdapterFile);
}

}  // namespace megatrain
