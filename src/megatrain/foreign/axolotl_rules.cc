#include "megatrain/foreign/axolotl_rules.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/among.h"
#include "megatrain/base/error.h"
#include "megatrain/foreign/adapters.h"
#include "megatrain/foreign/axolotl_data.h"
#include "megatrain/foreign/deepspeed.h"
#include "megatrain/foreign/hf_trainer.h"
#include "megatrain/foreign/sentences.h"
#include "megatrain/foreign/trackers.h"

namespace megatrain {
namespace {

bool evaluates(const ForeignReader& r) {
  const Foreign *part = r.find("val_set_size"), *sets = r.find("test_datasets");
  return (part && is_on(*part)) || (sets && is_on(*sets)) || r.own("data.eval") || r.own("data.eval_split");
}

void datasets(ForeignReader& r) {
  r.attempt([&] { hf_held_out(r, "val_set_size"); });
  const char* const names[][2] = {{"datasets", "data.train"}, {"test_datasets", "data.eval"}};
  const bool pretraining = r.find("pretraining_dataset") != nullptr;
  for (const auto& [name, key] : names) {
    const char* const from = pretraining && std::string(key) == "data.train" ? "pretraining_dataset" : name;
    const Foreign* value = r.find(from);
    if (!value || !is_on(*value)) {
      r.idle(from, "there is none");
      if (r.theirs() && std::string(key) == "data.train" && !r.own("data.train") && !r.own("data.tokens"))
        fail_config(fmt::format("{}: no data; give datasets: [{{path: …, type: …}}]", r.file()));
      continue;
    }
    std::vector<std::string> problems;
    AxolotlDatasets all = axolotl_datasets(from, *value, problems);
    for (const std::string& problem : problems) r.attempt([&] { fail_config(problem); });
    if (!problems.empty()) continue;
    Translation& t = r.add(from, "", key, "", fmt::format("{}", fmt::join(all.notes, "; ")));
    t.items = std::move(all.items);
    if (std::string(from) == "pretraining_dataset" && !r.flag("sample_packing") && !r.own("data.packing"))
      all.warnings.push_back(
          r.flag("pretraining_sample_concatenation")
              ? "a text longer than sequence_len is trained whole here; Axolotl trains only its beginning"
              : "without sample_packing a sequence holds one text or a piece of one: all of it is trained, and the end "
                "token; Axolotl trains the first sequence_len - 2 tokens of each text only, without an end token");
    t.warning = fmt::format("{}", fmt::join(all.warnings, "; "));
    t.theirs = fmt::format("{}: {}", from, value->items.empty() ? value->text : "[…]");
  }
  if (!pretraining) return;
  r.idle("datasets", "pretraining_dataset decides");
  const Foreign *sets = r.find("pretraining_dataset"), *part = r.find("val_set_size");
  if (sets->items.size() > 1)
    fail_config(
        fmt::format("{}: pretraining_dataset has {} datasets, of which Axolotl reads only the first; keep one, "
                    "or give them as datasets of type: completion",
                    sets->where, sets->items.size()));
  if (part && is_on(*part))
    fail_config(
        fmt::format("{}: val_set_size is {}, which Axolotl refuses beside pretraining_dataset; give "
                    "test_datasets",
                    part->where, part->text));
}

// Without sample_packing, pretraining_sample_concatenation fills sequences with complete texts.
void axolotl_packing(ForeignReader& r) {
  const bool packed = r.flag("sample_packing"), texts = r.find("pretraining_dataset") != nullptr;
  const bool joined = texts && !packed && r.flag("pretraining_sample_concatenation");
  if (joined) {
    r.add("pretraining_sample_concatenation", "", "data.packing", "true",
          "each text attends only to itself; in Axolotl also to those before it in its sequence");
    r.idle("sample_packing", "pretraining_sample_concatenation decides");
  } else {
    r.add("sample_packing", "false", "data.packing", packed ? "true" : "false",
          packed ? "sequences are filled from all samples, so there are about as many steps as there" : "");
    r.idle("pretraining_sample_concatenation", packed  ? "sample_packing decides"
                                               : texts ? "a sequence holds one text, or a piece of one"
                                                       : "it is of pretraining_dataset");
  }
  if (r.flag("curriculum_sampling"))
    r.add("curriculum_sampling", "", "data.shuffle", "false");
  else
    r.idle("curriculum_sampling", "the samples of an epoch are shuffled");
}

bool has_conversations(const ForeignReader& r) {
  const Foreign* sets = r.find("pretraining_dataset") ? nullptr : r.find("datasets");
  const auto talks = [](const std::map<std::string, std::string>& entries) {
    const auto type = entries.find("type");
    return type != entries.end() && (type->second.starts_with("chat_template") || type->second.starts_with("sharegpt"));
  };
  return sets && (talks(sets->entries) || std::any_of(sets->items.begin(), sets->items.end(),
                                                      [&](const ForeignItem& item) { return talks(item.entries); }));
}

void axolotl_masks(ForeignReader& r) {
  const bool all = r.flag("train_on_inputs");
  Translation& t = r.add("train_on_inputs", "false", "data.train_on", all ? "all" : "assistant");
  if (all && has_conversations(r) && !r.own("data.train_on")) {
    t.note = "the template's own text, too; there each turn's content and its end";
    t.warning =
        "train_on_inputs trains every token of a conversation here, those that the chat template writes around the "
        "turns, too; Axolotl trains the content of each turn and the token that ends it";
  }
  const std::string long_ones = r.text("excess_length_strategy", "drop");
  if (long_ones != "drop" && long_ones != "truncate" && long_ones != "raise")
    fail_config(fmt::format("{}: excess_length_strategy is '{}', expected drop, truncate or raise",
                            r.given().at("excess_length_strategy").where, long_ones));
  r.add("excess_length_strategy", "drop", "data.overlong", long_ones == "raise" ? "error" : long_ones);
}

// Any two of micro_batch_size, gradient_accumulation_steps and batch_size determine the third.
void axolotl_batch(ForeignReader& r) {
  const char *const size = "micro_batch_size", *const turns = "gradient_accumulation_steps", *const all = "batch_size";
  const bool asked = r.is_given(size) || r.find(turns) || r.find(all);
  if (!asked && r.own("batch")) return;
  const int64_t micro = r.count(size, 1);
  if (r.find(turns) && r.find(all))
    fail_config(
        fmt::format("{}: gradient_accumulation_steps and batch_size are both given; keep one", r.find(all)->where));
  int64_t times = r.find(turns) ? r.count(turns, 1) : 1;
  if (r.find(all)) times = std::max<int64_t>(r.count(all, 1) / micro, 1);
  if (r.is_given(size) || !r.own("micro_batch")) r.add(size, "1", "micro_batch", std::to_string(micro));
  Translation& t = r.add(r.find(all)        ? all
                         : r.is_given(size) ? size
                                            : turns,
                         "1", "batch", std::to_string(micro * times));
  t.theirs = r.find(all) ? r.shown(all, "") : fmt::format("{} x {}", r.shown(size, "1"), r.shown(turns, "1"));
  t.given = asked;
  if (r.is_given(turns) && !r.find(turns)) r.idle(turns, "batch_size decides");
}

void axolotl_length(ForeignReader& r) {
  if (hf_steps(r, "num_epochs")) return;
  if (r.find("pretraining_dataset") && !r.own("steps") && !r.own("tokens"))
    fail_config(fmt::format("{}: pretraining_dataset needs max_steps", r.find("pretraining_dataset")->where));
  hf_epochs(r, "num_epochs", "1.0");
}

void schedule(ForeignReader& r) {
  hf_schedule(r, "lr_scheduler", "cosine", "0");
  if (r.is_given("lr_scheduler") && !r.find("lr_scheduler")) r.idle("lr_scheduler", "cosine is the default");
  const double least = r.number("cosine_min_lr_ratio", 0), still = r.number("cosine_constant_lr_ratio", 0);
  const bool cosine = hf_schedule_name(r, "lr_scheduler", "cosine") == "cosine";
  if (least > 0 && still > 0 && cosine)
    fail_config(fmt::format("{}: cosine_constant_lr_ratio is {}, expected 0: the rate falls to the end of the run",
                            r.find("cosine_constant_lr_ratio")->where, still));
  if (least > 0 && cosine && !r.own("optim.lr"))
    r.add("cosine_min_lr_ratio", "", "optim.min_lr", fmt::format("{}", least * r.number("learning_rate", 0)),
          "that part of learning_rate");
  else
    r.idle("cosine_min_lr_ratio", !cosine             ? "it is of the schedule cosine"
                                  : r.own("optim.lr") ? "optim.lr is given; optim.min_lr says where it ends"
                                                      : "the rate falls to 0");
  r.idle("cosine_constant_lr_ratio", "the rate falls to the end of the run");
}

// Axolotl's default is int(0.03 * steps), at most 100, and two steps where that gives one.
void axolotl_warmup(ForeignReader& r) {
  const Foreign *steps = r.find("warmup_steps"), *part = r.find("warmup_ratio");
  if (steps && part)
    fail_config(fmt::format("{}: warmup_steps and warmup_ratio are both given; keep one", part->where));
  const double ratio = hf_warmup_ratio(r, 0.03);
  const char* const name = steps ? "warmup_steps" : "warmup_ratio";
  if (hf_schedule_name(r, "lr_scheduler", "cosine") == "constant") {
    r.add(name, "0.03", "optim.warmup", "0", "constant has no warmup; constant_with_warmup has");
  } else if (steps) {
    const double part_of = foreign_double(name, *steps);
    const bool fraction = part_of > 0 && part_of < 1;  // as transformers reads it
    const int64_t whole = fraction ? 0 : std::stoll(foreign_whole(name, *steps));
    r.add(name, "", "optim.warmup", fraction ? foreign_number(name, *steps) : std::to_string(whole == 1 ? 2 : whole),
          fraction     ? "a part of the run"
          : whole == 1 ? "one step is two there"
                       : "");
  } else {
    r.add(name, "0.03", "optim.warmup", fmt::format("{}", ratio));
    if (!part) r.rule("(warmup that is not given)", "optim.warmup_most", "100");
  }
  if (!steps) r.idle("warmup_steps", "warmup_ratio decides");
  if (steps) r.idle("warmup_ratio", "warmup_steps decides");
}

void axolotl_precision(ForeignReader& r) {
  const std::string mixed = r.text("bf16", r.is_given("bf16") ? "false" : "auto");
  const bool on =
      mixed == "auto" || mixed == "full" ||
      foreign_flag("bf16", {.text = mixed, .where = r.is_given("bf16") ? r.given().at("bf16").where : ""}) ||
      r.flag("bfloat16");
  const bool half = r.flag("fp16") || r.flag("float16");
  const char* from = on || !half ? (r.flag("bfloat16") && !r.is_given("bf16") ? "bfloat16" : "bf16")
                                 : (r.flag("fp16") ? "fp16" : "float16");
  r.add(from, "auto", "precision", on || half ? "bf16" : "fp32",
        !on && half               ? "bf16 needs no loss scaling"
        : axolotl_lora(r.given()) ? kAdapterState
                                  : "weights and their state stay fp32");
  for (const char* other : {"bf16", "bfloat16", "fp16", "float16", "float32"})
    if (std::string(other) != from) r.idle(other, fmt::format("{} decides", from));
}

// In Axolotl too, a count per epoch becomes a fraction of the run. One for the whole run gives no fraction.
std::string part_of_run(const ForeignReader& r, const char* name) {
  const double each = r.number(name, 0) * r.number("num_epochs", 1);
  return each > 1 ? fmt::format("{}", 1.0 / each) : "";
}

// Axolotl refuses such a file itself.
void refuse_mismatch(const ForeignReader& r, const char* strategy, const char* steps) {
  const Foreign *when = r.find(strategy), *count = r.find(steps);
  if (when && count && is_on(*when) && is_on(*count) && when->text != "steps")
    fail_config(fmt::format("{}: {} is '{}' and {} is {}, which Axolotl refuses; give {}: steps, or leave {} out",
                            count->where, strategy, when->text, steps, count->text, strategy, steps));
}

void axolotl_saves(ForeignReader& r) {
  const Foreign *steps = r.find("save_steps"), *times = r.find("saves_per_epoch");
  if (steps && times && is_on(*steps) && is_on(*times))
    fail_config(fmt::format("{}: save_steps and saves_per_epoch are both given; keep one", times->where));
  const std::string when = hf_strategy(r, "save_strategy", "epoch");
  refuse_mismatch(r, "save_strategy", "save_steps");
  if (times && is_on(*times)) {
    const std::string part = part_of_run(r, "saves_per_epoch");
    r.add("saves_per_epoch", "", "checkpoint.every", part.empty() ? "epoch" : part, part.empty() ? "" : "of the run");
  } else if (steps && is_on(*steps)) {
    r.add("save_steps", "", "checkpoint.every", hf_every("save_steps", *steps));
  } else {
    r.add("save_strategy", "epoch", "checkpoint.every", when == "no" ? "0" : when == "steps" ? "500" : "epoch");
  }
  const bool decided = (times && is_on(*times)) || (steps && is_on(*steps));
  if (decided) r.idle("save_strategy", "checkpoint.every says when");
  if (!steps || !is_on(*steps)) r.idle("save_steps", "checkpoint.every says when");
  if (!times || !is_on(*times)) r.idle("saves_per_epoch", "checkpoint.every says when");
  const Foreign* most = r.find("save_total_limit");
  r.add("save_total_limit", "4", "checkpoint.keep",
        most && is_on(*most) ? foreign_whole("save_total_limit", *most) : "4");
}

void axolotl_evaluations(ForeignReader& r) {
  const Foreign *steps = r.find("eval_steps"), *times = r.find("evals_per_epoch");
  const char* const name = r.is_given("evaluation_strategy") ? "evaluation_strategy" : "eval_strategy";
  const std::string when = hf_strategy(r, name, "no");
  const bool by_times = times && is_on(*times), by_steps = steps && is_on(*steps);
  refuse_mismatch(r, name, "eval_steps");
  refuse_mismatch(r, name, "evals_per_epoch");
  if (by_times && by_steps)
    fail_config(fmt::format("{}: eval_steps and evals_per_epoch are both given; keep one", times->where));
  const char* used = "";
  if (!evaluates(r)) {
    used = "";
  } else if (const std::string part = by_times ? part_of_run(r, "evals_per_epoch") : ""; !part.empty()) {
    r.add(used = "evals_per_epoch", "", "eval.every", part, "of the run; there once before the first step, too");
  } else if (by_steps) {
    r.add(used = "eval_steps", "", "eval.every", hf_every("eval_steps", *steps),
          "there once before the first step, too");
  } else {
    r.add(used = name, "no", "eval.every",
          when == "epoch"   ? "epoch"
          : when == "steps" ? "500"
                            : "0",
          when == "no" ? "at the end" : "");
  }
  for (const char* other : {"evals_per_epoch", "eval_steps", name})
    if (std::string(other) != used)
      r.idle(other, evaluates(r) ? fmt::format("{} decides", used) : "there is no data to evaluate on");
  const Foreign* best = r.find("load_best_model_at_end");
  const bool keep =
      (best && is_on(*best)) || (r.find("early_stopping_patience") && is_on(*r.find("early_stopping_patience")));
  if (keep && evaluates(r))
    r.add(best ? "load_best_model_at_end" : "early_stopping_patience", "", "eval.keep_best", "true",
          "the best goes to RUN/best, the last to RUN/model");
  else
    r.idle("load_best_model_at_end", "the last model is RUN/model");
}

// Axolotl's names of chat templates that are built in here.
constexpr std::pair<const char*, const char*> kAxolotlBuiltins[] = {
    {"alpaca", "alpaca-plain"},
    {"chatml", "chatml"},
    {"deepseek_v2", "deepseek-v2"},
    {"deepseek_v3", "deepseek-v3"},
    {"gemma", "gemma"},
    {"gemma3", "gemma"},
    {"llama3", "llama3"},
    {"phi_3", "phi-3"},
    {"phi_35", "phi"},
    {"qwen_25", "qwen"},
    {"qwen3", "qwen3"},
};

void named_template(ForeignReader& r, bool inlined) {
  const std::string named = r.text("chat_template", "tokenizer_default");
  if (inlined || named == "tokenizer_default")
    return r.idle("chat_template", "chat_template_jinja, or the model's own chat template, is used");
  if (r.own("data.template")) return r.idle("chat_template", "data.template is given");
  if (!has_conversations(r)) return r.idle("chat_template", "no dataset has conversations");
  const auto* const known = std::find_if(std::begin(kAxolotlBuiltins), std::end(kAxolotlBuiltins),
                                         [&](const auto& one) { return one.first == named; });
  if (known != std::end(kAxolotlBuiltins)) {
    r.add("chat_template", nullptr, "data.template", known->second,
          "if the model's own chat template renders the same, that one is used");
    return;
  }
  r.differs("chat_template", kOwnTemplate,
            fmt::format("chat_template {} is not built in: the model's own chat template is used", named));
}

void tokenizer(ForeignReader& r) {
  if (const Foreign* given = r.find("special_tokens")) {
    if (given->entries.empty() && is_on(*given))
      fail_config(fmt::format("{}: special_tokens is '{}', expected names and tokens, such as {{pad_token: …}}",
                              given->where, given->text));
    std::vector<std::string> changed;
    for (const auto& [name, token] : given->entries)
      if (name != "pad_token") changed.push_back(fmt::format("{}: {}", name, token));
    Translation& t =
        r.add("special_tokens", "", "", "",
              changed.empty() ? "padding is not trained, whatever its token" : "the tokenizer's own tokens are used");
    if (!changed.empty())
      t.warning = fmt::format(
          "special_tokens has {}: the tokenizer's own tokens are used; change its files where they "
          "differ",
          fmt::join(changed, ", "));
  } else {
    r.idle("special_tokens", "the tokenizer's own are used");
  }
  const Foreign* inlined = r.find("chat_template_jinja");
  if (inlined && inlined->text.find_first_of("{}\n") != std::string::npos)
    fail_config(fmt::format("{}: chat_template_jinja is a template, expected the path of a file that holds it",
                            inlined->where));
  if (const Foreign* name = r.find("chat_template");
      name && name->text == "jinja" && !inlined && !r.own("data.template"))
    fail_config(
        fmt::format("{}: chat_template is 'jinja', and no chat_template_jinja says which; give the path of a "
                    "file that holds the template, or chat_template: tokenizer_default",
                    name->where));
  if (inlined)
    r.add("chat_template_jinja", "", "data.template", inlined->text);
  else
    r.idle("chat_template_jinja", "the model's own chat template is used");
  named_template(r, inlined != nullptr);
}

// Plugins of kernels and of several GPUs have no effect here; others are methods that megatrain does not have.
void plugins(ForeignReader& r) {
  const Foreign* given = r.find("plugins");
  if (!given) return r.idle("plugins", "there are none");
  std::vector<std::string> other;
  std::vector<ForeignItem> items = given->items;
  if (items.empty() && is_on(*given)) items.push_back({{{"", given->text}}, given->where});
  for (const ForeignItem& item : items) {
    const std::string path = item.entries.count("") ? item.entries.at("") : "?";
    const std::string name = path.substr(path.rfind('.') + 1);
    constexpr const char* kWithoutEffect[] = {"CutCrossEntropyPlugin", "LigerPlugin", "KernelsPlugin", "SwanLabPlugin",
                                              "ExpertParallelPlugin"};
    if (!among(kWithoutEffect, name)) other.push_back(name);
  }
  if (!other.empty())
    fail_config(fmt::format("{}: plugins asks for {}, which megatrain does not do; leave it out", given->where,
                            fmt::join(other, " and ")));
  r.idle("plugins", kFused);
}

void axolotl_resume(ForeignReader& r) {
  if (r.find("resume_from_checkpoint")) return hf_resume(r);
  r.idle("resume_from_checkpoint", "give --resume to continue");
  if (r.flag("auto_resume_from_checkpoints"))
    r.add("auto_resume_from_checkpoints", "", "resume", "true", "from the newest checkpoint of run_dir");
  else
    r.idle("auto_resume_from_checkpoints", "give --resume to continue");
}

void warnings(ForeignReader& r) {
  if (r.flag("resize_token_embeddings_to_32x"))
    r.add("resize_token_embeddings_to_32x", "", "", "", "the vocabulary stays as it is").warning =
        "resize_token_embeddings_to_32x is not supported: the embedding keeps its rows";
  else
    r.idle("resize_token_embeddings_to_32x", "the vocabulary stays as it is");
  const Foreign* most = r.find("loss_watchdog_threshold");
  if (most && is_on(*most))
    r.add("loss_watchdog_threshold", "", "", "", "only a loss that is infinite or NaN ends the run").warning =
        "loss_watchdog_threshold is not supported: only a loss that is infinite or NaN ends the run";
  r.idle("loss_watchdog_patience", "it is of loss_watchdog_threshold");
  if (r.flag("tokenizer_use_mistral_common"))
    r.differs("tokenizer_use_mistral_common", kModel,
              "tokenizer_use_mistral_common is not supported: the model's tokenizer.json and chat template are used; "
              "'megatrain inspect data' shows their text");
  else
    r.idle("tokenizer_use_mistral_common", kModel);
}

// The only entry of the model's configuration that changes no weight: it turns the loss that balances the experts on.
void model_overrides(ForeignReader& r, const char* name) {
  const Foreign* given = r.find(name);
  if (!given || !is_on(*given)) return r.idle(name, kModel);
  for (const auto& [entry, value] : given->entries)
    if (entry != "output_router_logits")
      fail_config(
          fmt::format("{}: {} has {}, which megatrain does not override; change the model's config.json instead",
                      given->where, name, entry));
  if (given->entries.empty())
    fail_config(fmt::format("{}: {} is '{}', expected a mapping", given->where, name, given->text));
  const auto& [entry, value] = *given->entries.begin();
  const bool on = foreign_flag(entry, {.text = value, .where = given->where});
  r.add(
       name, "", "moe.aux_loss", on ? "model" : "0",
       on ? "the loss that balances the experts, times router_aux_loss_coef" : "without the loss that balances experts")
      .theirs = fmt::format("{}: {{{}: {}}}", name, entry, value);
}

// There, a regular expression matches the beginning of a name, each dot is a dot unless a plus follows it, and numbers
// in brackets at the end ("[:32000]") are rows.
std::string axolotl_pattern(const std::string& given, const std::string& where) {
  const size_t open = given.rfind('[');
  const bool rows = given.ends_with(']') && open != std::string::npos &&
                    given.find_first_not_of("0123456789:", open + 1) == given.size() - 1;
  if (rows)
    fail_config(fmt::format("{}: unfrozen_parameters has '{}', expected whole tensors: leave the rows {} out", where,
                            given, given.substr(open)));
  if (given.find(',') != std::string::npos)
    fail_config(fmt::format("{}: unfrozen_parameters has '{}', expected patterns without a comma", where, given));
  std::string pattern;
  for (size_t i = given.starts_with('^') ? 1 : 0; i < given.size(); ++i) {
    const bool dot = given[i] == '.' && (i + 1 == given.size() || given[i + 1] != '+');
    if (dot && !(i > 0 && given[i - 1] == '\\')) pattern += '\\';
    pattern += given[i];
  }
  return fmt::format("^(?:{}).*", pattern);
}

void axolotl_trained(ForeignReader& r) {
  const Foreign* given = r.find("unfrozen_parameters");
  if (!given || !is_on(*given)) return r.idle("unfrozen_parameters", "nothing else is frozen");
  if (axolotl_lora(r.given()))
    return r.differs("unfrozen_parameters", "the adapters are trained",
                     "unfrozen_parameters has no effect beside adapter: the weights are frozen, and the adapters and "
                     "lora_modules_to_save are trained");
  std::vector<std::string> patterns;
  for (const ForeignItem& item : given->items) patterns.push_back(axolotl_pattern(item.entries.at(""), item.where));
  if (patterns.empty()) patterns.push_back(axolotl_pattern(given->text, given->where));
  r.add("unfrozen_parameters", "", "train_only", fmt::format("{}", fmt::join(patterns, ",")),
        "names are those of the model's files");
}

}  // namespace

void axolotl_rules(ForeignReader& r) {
  for (void (*each)(ForeignReader&) :
       {datasets, axolotl_packing, axolotl_masks, axolotl_batch, axolotl_length, schedule, axolotl_warmup,
        axolotl_precision, hf_fp8, axolotl_adapter, axolotl_trained, axolotl_saves, axolotl_evaluations, tokenizer,
        plugins, axolotl_resume, axolotl_trackers, warnings})
    r.attempt([&] { each(r); });
  for (const char* name : {"model_config", "overrides_of_model_config"}) r.attempt([&] { model_overrides(r, name); });
  r.attempt([&] { hf_replicas(r, {"dp_shard_size", "dp_replicate_size", "expert_parallel_size", "ray_num_workers"}); });
  r.attempt([&] { hf_optimizer(r, "optimizer"); });
  check_deepspeed(r, "micro_batch_size", 1);
  r.attempt([&] {
    if (!r.is_given("learning_rate") && !r.own("optim.lr"))
      fail_config(fmt::format("{}: no learning_rate, for which Axolotl has no default; give one", r.file()));
  });
  r.idle("logging_steps", "every step is logged");
  r.idle("rl", "conversations and text are trained on");
  hf_seed(r);
  r.rule("(steps and warmup)", "conventions", "axolotl");
}

}  // namespace megatrain
