#include "megatrain/foreign/deepspeed.h"

#include <filesystem>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/json_file.h"

namespace megatrain {
namespace {

using nlohmann::json;

class DeepSpeed {
 public:
  DeepSpeed(ForeignReader& reader, const json& config, std::string where)
      : reader_(reader), config_(config), where_(std::move(where)) {}

  void optimizer() const {
    if (!config_.contains("optimizer")) return;
    const json& section = config_.at("optimizer");
    const std::string type = section.is_object() ? section.value("type", json("")).dump() : section.dump();
    if (type != "\"Adam\"" && type != "\"AdamW\"")
      fail_config(
          fmt::format("{}: its optimizer is {}, expected AdamW: the optimizer is AdamW, with the settings of the "
                      "configuration; take the section out of it",
                      where_, type));
    const json settings = section.value("params", json::object());
    if (!settings.is_object()) fail_config(fmt::format("{}: optimizer.params is not a mapping", where_));
    const auto setting = [&](const char* name, const char* key, double standard) {
      same(settings.value(name, json()), fmt::format("optimizer.params.{}", name), key, reader_.number(key, standard));
    };
    setting("lr", "learning_rate", 5e-5);
    setting("weight_decay", "weight_decay", 0);
    setting("eps", "adam_epsilon", 1e-8);
    if (type == "\"Adam\"" && settings.value("adam_w_mode", json()) == false && reader_.number("weight_decay", 0) != 0)
      fail_config(fmt::format(
          "{}: optimizer.params.adam_w_mode is false, which adds the weight decay to the gradient; here it is "
          "decoupled: leave it out, or set weight_decay to 0",
          where_));
    if (settings.value("bias_correction", json()) == false)
      fail_config(
          fmt::format("{}: optimizer.params.bias_correction is false, and AdamW corrects its moments here; leave "
                      "it out",
                      where_));
    const json betas = settings.value("betas", json());
    if (!betas.is_array() || betas.size() != 2) return;
    same(betas[0], "optimizer.params.betas[0]", "adam_beta1", reader_.number("adam_beta1", 0.9));
    same(betas[1], "optimizer.params.betas[1]", "adam_beta2", reader_.number("adam_beta2", 0.999));
  }

  void scheduler() const {
    if (!config_.contains("scheduler")) return;
    const json& section = config_.at("scheduler");
    fail_config(
        fmt::format("{}: its scheduler ({}) would decide the learning rates there, above the configuration's; take the "
                    "section out of it",
                    where_, section.is_object() ? section.value("type", json("")).dump() : section.dump()));
  }

  // Refuses sections that change the run and have no equivalent key.
  void methods() const {
    for (const char* name : {"progressive_layer_drop", "curriculum_learning", "data_efficiency", "amp"}) {
      if (enabled(name) == true)
        fail_config(fmt::format("{}: {} is enabled, which is not supported: leave the section out", where_, name));
    }
  }

  // `precision` is the translation of the trainer's own keys.
  void precision(const Translation* precision) const {
    if (!precision) return;
    const bool here = precision->text == "bf16", half = precision->from == "fp16" || precision->from == "float16";
    const std::optional<bool> bf16 = enabled("bf16"), fp16 = enabled("fp16");
    const bool differs = (bf16 && *bf16 != (here && !half)) || (fp16 && *fp16 != (here && half));
    if (!differs) return;
    const auto shown = [](const std::optional<bool>& value) { return !value ? "auto" : *value ? "true" : "false"; };
    fail_config(fmt::format(
        "{}: bf16.enabled is {} and fp16.enabled {}, and {} makes the precision {}; the Hugging Face trainer "
        "refuses two that differ: give one, or \"auto\" there",
        where_, shown(bf16), shown(fp16), precision->from, precision->text));
  }

  void same(const char* name, const char* key, double here) const {
    same(config_.value(name, json()), name, key, here);
  }

 private:
  // Whether the section is enabled; nothing if it is missing or "auto".
  std::optional<bool> enabled(const char* section) const {
    const json found = config_.value(section, json());
    const json value = found.is_object() ? found.value("enabled", json()) : json();
    return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
  }

  void same(const json& there, const std::string& name, const char* key, double here) const {
    if (!there.is_number() || there.get<double>() == here) return;
    fail_config(
        fmt::format("{}: {} is {}, and {} is {}; the Hugging Face trainer refuses two values that differ: give one, or "
                    "\"auto\" there",
                    where_, name, there.dump(), key, here));
  }

  ForeignReader& reader_;
  const json& config_;
  const std::string where_;
};

}  // namespace

void check_deepspeed(ForeignReader& reader, const char* micro_batch, int64_t standard) {
  const Foreign* given = reader.find("deepspeed");
  std::error_code none;
  if (!given || (given->entries.empty() && !std::filesystem::is_regular_file(given->text, none))) return;
  const bool mapping = !given->entries.empty();
  json config;
  reader.attempt([&] { config = mapping ? json::parse(given->json) : read_json_file(given->text); });
  if (!config.is_object()) return;
  const DeepSpeed deepspeed(reader, config, mapping ? given->where + ": deepspeed" : given->text);
  reader.attempt([&] { deepspeed.optimizer(); });
  reader.attempt([&] { deepspeed.scheduler(); });
  reader.attempt([&] { deepspeed.methods(); });
  reader.attempt([&] { deepspeed.precision(reader.translated("precision")); });
  reader.attempt([&] { deepspeed.same("gradient_clipping", "max_grad_norm", reader.number("max_grad_norm", 1)); });
  reader.attempt([&] {
    const int64_t micro = reader.count(micro_batch, standard), turns = reader.count("gradient_accumulation_steps", 1);
    const auto whole = [](int64_t number) { return static_cast<double>(number); };
    deepspeed.same("train_micro_batch_size_per_gpu", micro_batch, whole(micro));
    deepspeed.same("gradient_accumulation_steps", "gradient_accumulation_steps", whole(turns));
    deepspeed.same("train_batch_size", "the batch of one GPU", whole(micro * turns));
  });
}

}  // namespace megatrain
