// LLaMA-Factory's second format ("v1"): `model: NAME` with train_dataset, micro_batch_size and sections of plugins.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/foreign/hf_trainer.h"
#include "megatrain/foreign/llamafactory_templates.h"
#include "megatrain/foreign/methods.h"
#include "megatrain/foreign/sentences.h"
#include "megatrain/foreign/trainers.h"
#include "megatrain/io/json.h"

namespace megatrain {
namespace {

constexpr RenamedKey kV1Renamed[] = {
    {"model", "model.path", ForeignKind::text, nullptr, "null"},
    {"train_dataset", "data.train", ForeignKind::text, nullptr, "null",
     "in Alpaca rows input is on its own line and history is trained; in LLaMA-Factory v1 neither"},
    {"eval_dataset", "data.eval", ForeignKind::text, nullptr, "null"},
    {"cutoff_len", "seq_len", ForeignKind::whole, "2048"},
    {"learning_rate", "optim.lr", ForeignKind::number, "1e-4"},
    {"max_grad_norm", "optim.clip", ForeignKind::number, "1.0"},
    {"output_dir", "run_dir", ForeignKind::text},
    {"save_total_limit", "checkpoint.keep", ForeignKind::whole, "null", kAllCheckpoints},
};

constexpr ForeignIdle kV1Idle[] = {
    {"model_class", "llm", "models of text are trained"},
    {"kernel_config", nullptr, kFused},
    {"init_config", nullptr, kPlan},
    {"flash_attn", nullptr, "attention is always the fused kernel"},
    {"trust_remote_code", nullptr, "no code of a model is ever run"},
    {"custom_chat_template", "null", "data.template names a file with another chat template"},
    {"enable_activation_checkpointing", nullptr, kPlan},
    {"batching_workers", nullptr, kTokenising},
    {"dist_timeout", nullptr, kOneProcess},
    {"dp_size", "1 null", kGpus},
    {"cp_size", nullptr, kSplit},
    {"cp_mode", nullptr, kOneProcess},
    {"mp_replicate_size", "1 null", kGpus},
    {"mp_shard_size", nullptr, kOneProcess},
    {"lr_scheduler_config", "null", "give optim.schedule, optim.warmup and optim.min_lr"},
    {"logging_steps", nullptr, "every step is logged"},
    {"save_ckpt_as_hf", nullptr, "checkpoints hold the whole state, RUN/model the model"},
    {"full_determinism", nullptr, kAlways},
    {"sample_backend", nullptr, kGeneration},
    {"max_new_tokens", nullptr, kGeneration},
};

std::string name_in(const Foreign& section) {
  const auto found = section.entries.find("name");
  return found == section.entries.end() ? section.text : found->second;
}

void refuse_plugins(const ForeignTrainer&, const ForeignKeys& given) {
  const auto on = [&](const char* name) -> const Foreign* {
    const auto found = given.find(name);
    return found == given.end() || !is_on(found->second) ? nullptr : &found->second;
  };
  std::vector<std::string> refused;
  const auto refuse = [&](const std::string& name, const Foreign& value, const char* method, const char* instead) {
    try {
      refuse_method(name, value, method, instead);
    } catch (const Error& error) {
      refused.emplace_back(error.what());
    }
  };
  const Foreign* peft = on("peft_config");
  const bool lora = peft && name_in(*peft) == "lora";
  if (peft && !lora) {
    const std::string name = name_in(*peft);
    const bool freeze = name == "freeze";
    refuse("peft_config", {.text = name, .where = peft->where},
           freeze ? "a choice of layers (freeze)" : "adapters of another kind than LoRA",
           freeze ? "leave the section out, and give train_only: patterns over the names of the tensors that are "
                    "trained"
                  : "give name: lora");
  }
  if (const Foreign* quant = on("quant_config"); quant && !lora)
    refuse("quant_config", {.text = name_in(*quant), .where = quant->where}, "a quantised model",
           "all weights are trained, which are bf16 or fp32: leave the section out, or give peft_config: {name: lora}");
  if (const Foreign* optim = on("optim_config"); optim && name_in(*optim) == "muon")
    refuse("optim_config", {.text = "muon", .where = optim->where}, "Muon", kAdamW);
  if (!refused.empty()) fail_config(fmt::format("{}", fmt::join(refused, ". Also: ")));
}

void v1_batch(ForeignReader& r) {
  const int64_t micro = r.count("micro_batch_size", 1);
  const int64_t all = r.find("global_batch_size") ? r.count("global_batch_size", 1) : micro;
  r.add("micro_batch_size", "1", "micro_batch", std::to_string(micro));
  Translation& t =
      r.add(r.find("global_batch_size") ? "global_batch_size" : "micro_batch_size", "1", "batch", std::to_string(all));
  t.given = r.is_given("micro_batch_size") || r.is_given("global_batch_size");
  if (!r.find("global_batch_size")) r.idle("global_batch_size", "micro_batch_size decides");
  const Foreign* how = r.find("batching_strategy");
  if (how && how->text != "normal" && how->text != "padding_free")
    refuse_method("batching_strategy", *how, "batches of as many tokens (dynamic batching)",
                  "a step has micro_batch_size samples, or with data.packing: true and batch full sequences: leave the "
                  "key out");
  r.idle("batching_strategy", "a step has as many samples, and padding is not trained");
}

void v1_length(ForeignReader& r) {
  if (hf_steps(r, "num_train_epochs")) return;
  if (Translation* epochs = hf_epochs(r, "num_train_epochs", "3"))
    epochs->warning =
        "the last step of an epoch holds what is left of it, which LLaMA-Factory v1 leaves out; give max_steps for its "
        "number of steps";
}

void v1_saves(ForeignReader& r) {
  const Foreign *steps = r.find("save_steps"), *epochs = r.find("save_epochs");
  if (epochs && foreign_number("save_epochs", *epochs) != "1" && foreign_number("save_epochs", *epochs) != "1.0")
    fail_config(
        fmt::format("{}: save_epochs is {}, expected 1; save_steps counts in steps", epochs->where, epochs->text));
  if (epochs)
    r.add("save_epochs", "", "checkpoint.every", "epoch");
  else
    r.add("save_steps", "null", "checkpoint.every", steps ? foreign_whole("save_steps", *steps) : "0");
  if (epochs) r.idle("save_steps", "save_epochs decides");
}

void v1_resume(ForeignReader& r) {
  const Foreign* value = r.find("resume_from_checkpoint");
  if (value && value->text == "auto")
    r.add("resume_from_checkpoint", "", "resume", "true", "from the newest checkpoint of run_dir");
  else
    hf_resume(r);
}

struct PeftEntry {
  const char *name, *key;
  bool needed;  // PEFT's default and theirs may differ
};
constexpr PeftEntry kPeftEntries[] = {{"r", "adapter.rank", true},
                                      {"lora_alpha", "adapter.alpha", true},
                                      {"lora_dropout", "adapter.dropout", true},
                                      {"target_modules", "adapter.targets", true},
                                      {"use_rslora", "adapter.rslora", false},
                                      {"use_dora", "adapter.dora", false},
                                      {"modules_to_save", "adapter.also_train", false}};

void add_peft_entry(ForeignReader& r, const std::string& name, const char* key, const nlohmann::json& value) {
  const bool all = value == "all" && std::string(key) == "adapter.targets";
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  Translation& t = r.add("peft_config", "", key, all ? "all-linear" : value.is_array() ? "" : text);
  t.theirs = fmt::format("peft_config.{}: {}", name, text);
  if (!value.is_array()) return;
  for (const nlohmann::json& module : value)
    t.items.push_back({{"", module.is_string() ? module.get<std::string>() : module.dump()}});
}

void v1_adapter(ForeignReader& r) {
  const Foreign* section = r.find("peft_config");
  if (!section || !is_on(*section)) return r.idle("peft_config", "all weights are trained");
  nlohmann::json entries = nlohmann::json::object();
  if (!section->json.empty()) entries = nlohmann::json::parse(section->json);
  const auto takes = [&](const char* name) { return entries.contains(name) && !entries.at(name).is_null(); };
  entries.erase("name");
  if (takes("adapter_name_or_path")) {
    add_peft_entry(r, "adapter_name_or_path", "model.adapter", entries.at("adapter_name_or_path"));
    return r.idle("peft_config", "the rest of the section: model.adapter has its own");
  }
  for (const PeftEntry& each : kPeftEntries) {
    if (takes(each.name))
      add_peft_entry(r, each.name, each.key, entries.at(each.name));
    else if (each.needed && !r.own(each.key))
      fail_config(
          fmt::format("{}: peft_config has no {}; give r, lora_alpha, lora_dropout and target_modules (all, or "
                      "names)",
                      section->where, each.name));
    entries.erase(each.name);
  }
  for (const auto& [name, value] : entries.items())
    if (!value.is_null() && value != nlohmann::json(false))
      fail_config(fmt::format("{}: peft_config has {}: {}, which megatrain does not do; leave it out", section->where,
                              name, value.dump()));
}

// Experts are spread over GPUs that each take samples of their own, which is the default of global_batch_size there.
void v1_gpus(ForeignReader& r) {
  const Foreign* dist = r.find("dist_config");
  const std::string gpus = dist && dist->entries.count("ep_size") ? dist->entries.at("ep_size") : "1";
  if (gpus == "1" || r.find("global_batch_size")) return r.idle("dist_config", kPlan);
  r.differs(
      "dist_config", kPlan,
      fmt::format("dist_config.ep_size is {}: there at least as many GPUs each take micro_batch_size samples of a "
                  "step, here one does; global_batch_size sets the samples of a step",
                  gpus));
}

void rules(ForeignReader& r) {
  for (void (*each)(ForeignReader&) : {v1_batch, v1_length, v1_saves, v1_resume, v1_adapter})
    r.attempt([&] { each(r); });
  r.attempt([&] {
    const bool half = !r.is_given("bf16") || r.flag("bf16");
    r.add("bf16", "true", "precision", half ? "bf16" : "fp32", "weights and their state stay fp32");
  });
  r.idle("quant_config", "the base is not quantised: it stays in the format of precision, frozen and streamed");
  v1_gpus(r);
  r.attempt([&] { factory_template(r); });
  r.attempt([&] {
    if (const Foreign* optim = r.find("optim_config"))
      fail_config(fmt::format("{}: optim_config is '{}', expected none: AdamW, with the settings of the section optim",
                              optim->where, name_in(*optim)));
    r.idle("optim_config", "AdamW");
  });
  hf_seed(r);
  r.rule("(weight decay)", "optim.weight_decay", "0.01", "not on norms and biases");
  r.rule("(packing)", "data.packing", "false");
  r.rule("(samples that are too long)", "data.overlong", "truncate");
  r.rule("(conversations of several turns)", "data.train_on", "assistant", "one sample; there one for each answer");
  r.rule("(steps and warmup)", "conventions", "transformers");
}

}  // namespace

const ForeignTrainer& llamafactory_v1() {
  static const ForeignTrainer kTrainer{
      .name = "LLaMA-Factory v1",
      .is_file =
          [](const std::set<std::string>& keys) {
            const auto has = [&](const char* key) { return keys.count(key) != 0; };
            return has("model") && (has("train_dataset") || has("model_class") || has("peft_config") ||
                                    has("dist_config") || has("kernel_config"));
          },
      .renamed = {kV1Renamed},
      .idle = {kV1Idle},
      .values = {},
      .switches = {},
      .choices = {},
      .parameters = {{"pref_*", "preferences"},
                     {"simpo_gamma", "preferences"},
                     {"dpo_*", "preferences"},
                     {"ld_alpha", "preferences"}},
      .ruled = {"micro_batch_size", "global_batch_size", "batching_strategy", "max_steps", "num_train_epochs",
                "save_steps", "save_epochs", "resume_from_checkpoint", "bf16", "peft_config", "quant_config",
                "dist_config", "optim_config", "template"},
      .lists = {},
      .nested = {"peft_config", "quant_config", "dist_config", "optim_config"},
      .refuse = refuse_plugins,
      .rules = rules};
  return kTrainer;
}

}  // namespace megatrain
