#include "megatrain/config/config_aliases.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/escape.h"
#include "megatrain/config/foreign_idle.h"
#include "megatrain/config/foreign_keys.h"
#include "megatrain/config/foreign_methods.h"

namespace megatrain {
namespace {

class Translator {
 public:
  Translator(const ForeignKeys& given, bool theirs, const std::set<std::string>& own)
      : given_(given), theirs_(theirs), own_(own) {}

  std::vector<Translation> run() {
    for (const RenamedKey& each : renamed_keys()) rename(each);
    method();
    packing();
    masks();
    batch();
    length();
    schedule();
    warmup();
    precision();
    saves();
    evaluations();
    resume();
    if (theirs_) counting();
    check_tokenized();
    for (const auto& [name, value] : given_) {
      if (is_idle_key(name)) idle(name, idle_note(name, value));
      if (is_method_key(name)) idle(name, method_note(name));
    }
    return std::move(out_);
  }

 private:
  // Given with a value.
  const Foreign* find(const char* name) const {
    const auto found = given_.find(name);
    return found == given_.end() || found->second.null ? nullptr : &found->second;
  }
  bool is_given(const char* name) const { return given_.count(name) != 0; }
  bool flag(const char* name) const { return is_given(name) && foreign_flag(name, given_.at(name)); }

  // The value of a key, or its default, as it is shown.
  std::string shown(const std::string& name, const char* standard) const {
    const auto found = given_.find(name);
    if (found == given_.end()) return fmt::format("{}: {}", name, standard);
    return fmt::format("{}: {}", name, found->second.null ? "null" : found->second.text);
  }

  void add(const std::string& from, const char* standard, std::string key, std::string text, std::string note = "") {
    out_.push_back({.from = from,
                    .theirs = shown(from, standard),
                    .key = std::move(key),
                    .text = std::move(text),
                    .note = std::move(note),
                    .given = is_given(from.c_str())});
  }
  void idle(const std::string& name, const std::string& why) {
    if (is_given(name.c_str())) add(name, "", "", "", why);
  }

  void rename(const RenamedKey& each) {
    const auto found = given_.find(each.name);
    if (found == given_.end() && (!theirs_ || !each.standard)) return;
    const Foreign standard{.text = each.standard ? each.standard : "", .where = "", .null = is_null(each.standard)};
    const Foreign& value = found == given_.end() ? standard : found->second;
    std::string text = value.text;
    if (value.null) {
      if (!each.null)
        fail_config(fmt::format("{}: {} is null, expected a value; leave the line out for the default", value.where,
                                each.name));
      text = each.null;
    } else if (each.kind == ForeignKind::number) {
      text = foreign_number(each.name, value);
    } else if (each.kind == ForeignKind::whole) {
      text = foreign_whole(each.name, value);
    } else if (each.kind == ForeignKind::flag) {
      const bool inverted = std::string(each.name).starts_with("disable_");
      text = foreign_flag(each.name, value) != inverted ? "true" : "false";
    }
    if (std::string(each.name) == "dataset_dir") check_directory(value);
    if (std::string(each.name) == "max_samples" && !value.null && text == "0")
      fail_config(fmt::format("{}: max_samples is 0, which leaves no sample; leave the line out for all", value.where));
    add(each.name, each.standard ? each.standard : "", each.key, text,
        text == kAllCheckpoints ? "all stay" : each.note);
  }
  static bool is_null(const char* text) { return text && std::string(text) == "null"; }

  static void check_directory(const Foreign& value) {
    if (value.text == "ONLINE" || value.text.starts_with("REMOTE:"))
      fail_config(
          fmt::format("{}: dataset_dir is '{}', but nothing is downloaded; expected a directory with a "
                      "dataset_info.json",
                      value.where, value.text));
  }

  void expect(const char* name, const std::vector<std::string>& accepted, const char* otherwise, const char* why) {
    const Foreign* value = find(name);
    if (value && std::find(accepted.begin(), accepted.end(), value->text) == accepted.end())
      fail_config(fmt::format("{}: {} is '{}', expected {}; {}", value->where,
                              std::string(name) == "optim_type" ? "optim" : name, value->text,
                              fmt::join(accepted, " or "), otherwise));
    idle(name, why);
  }

  void method() {
    expect("stage", {"sft", "pt"}, "megatrain trains on conversations and on text", "the data say which");
    expect("finetuning_type", {"full"}, "megatrain trains the weights themselves", "all weights are trained");
    expect("optim_type", {"adamw_torch", "adamw_torch_fused", "adamw", "adamw_hf"},
           "the optimizer is AdamW in fp32; drop this key, and give optim.lr and the like in the section optim",
           "AdamW in fp32");
    if (theirs_ && !is_given("finetuning_type"))
      out_.push_back({.from = "finetuning_type",
                      .theirs = "finetuning_type: lora",
                      .note = "NOT AS THERE: all weights are trained; write finetuning_type: full",
                      .given = false});
  }

  bool is_pretraining() const { return find("stage") && find("stage")->text == "pt"; }

  void packing() {
    const bool asked = is_given("packing") || is_given("neat_packing");
    if (!asked && !theirs_) return;
    const bool neat = flag("neat_packing");
    const bool on = neat || (find("packing") ? flag("packing") : is_pretraining());
    const char* note = "";
    if (on && is_pretraining())
      note = "documents are kept apart and fill sequences; there they are one stream, cut into pieces";
    else if (on && !neat)
      note = "each sample attends to itself alone, as with neat_packing";
    else if (on)
      note = "the samples of a sequence are chosen from all, there from a thousand";
    const char* from = !is_given("packing") && is_given("neat_packing") ? "neat_packing" : "packing";
    add(from, is_pretraining() ? "true" : "false", "data.packing", on ? "true" : "false", note);
    if (is_given("packing")) idle("neat_packing", "packing keeps samples apart in any case");
  }

  void masks() {
    const bool last = flag("mask_history"), all = flag("train_on_prompt");
    if (last && all)
      fail_config(fmt::format("{}: mask_history and train_on_prompt are both true; keep one",
                              given_.at("train_on_prompt").where));
    if (!last && !all && !theirs_) {
      idle("mask_history", "every turn of the assistant is trained");
      idle("train_on_prompt", "only what the assistant says is trained");
      return;
    }
    add(all ? "train_on_prompt" : "mask_history", "false", "data.train_on", all ? "all" : last ? "last" : "assistant");
    if (all)
      idle("mask_history", "train_on_prompt is true");
    else
      idle("train_on_prompt", "only what the assistant says is trained");
  }

  int64_t count(const char* name, int64_t standard) const {
    if (!is_given(name)) return standard;
    const int64_t number = std::stoll(foreign_whole(name, given_.at(name)));
    if (number < 1 || number > 1'000'000'000)
      fail_config(fmt::format("{}: {} is {}, expected a whole number from 1 to 1000000000", given_.at(name).where, name,
                              number));
    return number;
  }

  void batch() {
    const char *const size = "per_device_train_batch_size", *const turns = "gradient_accumulation_steps";
    const bool asked = is_given(size) || is_given(turns);
    if (!asked && (!theirs_ || own_.count("batch"))) return;
    const int64_t micro = count(size, theirs_ ? 8 : 1);
    if (is_given(size) || (theirs_ && !own_.count("micro_batch"))) add(size, "8", "micro_batch", std::to_string(micro));
    add(is_given(size) ? size : turns, "1", "batch", std::to_string(micro * count(turns, 1)));
    out_.back().theirs = fmt::format("{} x {}", shown(size, theirs_ ? "8" : "1"), shown(turns, "1"));
    out_.back().given = asked;
  }

  void length() {
    const bool own = own_.count("steps") || own_.count("epochs") || own_.count("tokens");
    const Foreign* steps = find("max_steps");
    const bool by_steps = steps && std::stoll(foreign_whole("max_steps", *steps)) > 0;
    if (by_steps) {
      add("max_steps", "", "steps", foreign_whole("max_steps", *steps));
      idle("num_train_epochs", "max_steps decides");
      return;
    }
    idle("max_steps", "epochs decide");
    if (is_given("num_train_epochs"))
      add("num_train_epochs", "", "epochs", foreign_number("num_train_epochs", given_.at("num_train_epochs")));
    else if (theirs_ && !own)
      add("num_train_epochs", "3.0", "epochs", "3");
  }

  std::string schedule_name() const {
    const Foreign* value = find("lr_scheduler_type");
    return value ? value->text : theirs_ ? "linear" : "";
  }

  void schedule() {
    static const std::map<std::string, std::string> kSchedules = {{"constant", "constant"},
                                                                  {"constant_with_warmup", "constant"},
                                                                  {"linear", "linear"},
                                                                  {"cosine", "cosine"},
                                                                  {"cosine_with_min_lr", "cosine"}};
    const std::string name = schedule_name();
    const auto found = kSchedules.find(name);
    if (!name.empty() && found == kSchedules.end())
      fail_config(
          fmt::format("{}: lr_scheduler_type is '{}', expected constant, constant_with_warmup, linear, cosine or "
                      "cosine_with_min_lr (optim.schedule: wsd is megatrain's warmup, stable, decay)",
                      given_.at("lr_scheduler_type").where, name));
    if (!name.empty()) add("lr_scheduler_type", "linear", "optim.schedule", found->second);
    least_rate(name);
  }

  void least_rate(const std::string& schedule) {
    const Foreign* given = find("lr_scheduler_kwargs");
    const bool entries = given && !given->entries.empty();
    if (given && !entries && given->text != "{}")
      fail_config(fmt::format("{}: lr_scheduler_kwargs is '{}', expected a mapping", given->where, given->text));
    if (schedule == "cosine_with_min_lr" && !entries && !own_.count("optim.min_lr"))
      fail_config(fmt::format("{}: cosine_with_min_lr needs lr_scheduler_kwargs: {{min_lr: …}}",
                              given_.at("lr_scheduler_type").where));
    if (!entries) return idle("lr_scheduler_kwargs", "nothing is in it");
    const auto& [name, text] = *given->entries.begin();
    const Foreign value{.text = text, .where = given->where};
    if (schedule != "cosine_with_min_lr" || given->entries.size() > 1 || (name != "min_lr" && name != "min_lr_rate"))
      fail_config(
          fmt::format("{}: lr_scheduler_kwargs has {}, expected min_lr or min_lr_rate, with lr_scheduler_type: "
                      "cosine_with_min_lr alone",
                      given->where, name));
    double least = std::stod(foreign_number(name, value));
    const Foreign standard{.text = "5e-5", .where = ""};
    const auto rate = given_.find("learning_rate");
    if (name == "min_lr_rate") {
      if (own_.count("optim.lr"))
        fail_config(fmt::format("{}: min_lr_rate is a part of learning_rate, but optim.lr is given; give optim.min_lr",
                                given->where));
      least *= std::stod(foreign_number("learning_rate", rate == given_.end() ? standard : rate->second));
    }
    add("lr_scheduler_kwargs", "", "optim.min_lr", fmt::format("{}", least));
    out_.back().theirs = fmt::format("{}: {}", name, text);
  }

  void warmup() {
    const Foreign *steps = find("warmup_steps"), *part = find("warmup_ratio");
    if (!steps && !part && !theirs_) return;
    const double in_steps = steps ? std::stod(foreign_number("warmup_steps", *steps)) : 0;
    const double in_parts = part ? std::stod(foreign_number("warmup_ratio", *part)) : 0;
    if (part && !(in_parts >= 0 && in_parts < 1))
      fail_config(
          fmt::format("{}: warmup_ratio is {}, expected a part of the run from 0 to below 1", part->where, part->text));
    const bool by_steps = in_steps > 0 || !part;
    const char* const name = by_steps ? "warmup_steps" : "warmup_ratio";
    if (schedule_name() == "constant") {  // transformers' "constant" has none
      add(name, "0", "optim.warmup", "0", "constant has no warmup; constant_with_warmup has");
    } else {
      add(name, "0", "optim.warmup", fmt::format("{}", by_steps ? in_steps : in_parts));
    }
    if (steps && part) idle(by_steps ? "warmup_ratio" : "warmup_steps", fmt::format("{} decides", name));
  }

  void precision() {
    const bool asked = is_given("bf16") || is_given("pure_bf16") || is_given("fp16");
    if (asked || theirs_) {
      const bool half = flag("fp16"), mixed = flag("bf16") || flag("pure_bf16");
      const char* from = flag("pure_bf16") ? "pure_bf16" : half && !mixed ? "fp16" : "bf16";
      if (!is_given(from) && asked) from = is_given("pure_bf16") ? "pure_bf16" : "fp16";
      add(from, "false", "precision", mixed || half ? "bf16" : "fp32",
          half && !mixed ? "bf16 needs no loss scaling" : "weights and their state stay fp32");
      for (const char* other : {"bf16", "pure_bf16", "fp16"})
        if (std::string(other) != from) idle(other, fmt::format("{} decides", from));
    }
    for (const char* name : {"use_cpu", "no_cuda"}) {
      if (flag(name))
        add(name, "", "device", "cpu");
      else
        idle(name, "the GPU is used when there is one");
    }
  }

  std::string every(const char* name, const Foreign& value) const {
    double number = std::stod(foreign_number(name, value));
    if (number > 0 && number < 1)
      fail_config(
          fmt::format("{}: {} is {}, a part of the run; expected a whole number of steps (`megatrain prepare` "
                      "prints how many the run has)",
                      value.where, name, value.text));
    return foreign_whole(name, value);
  }

  std::string strategy(const char* name, const char* key, const char* standard) const {
    const Foreign* value = find(name);
    if (!value) return standard;
    if (value->text == "steps") return "steps";
    if (!is_on(*value)) return "no";
    fail_config(
        fmt::format("{}: {} is '{}', expected steps or no; give {} in steps (`megatrain prepare` prints how "
                    "many an epoch has)",
                    value->where, name, value->text, key));
  }

  void saves() {
    const bool asked = is_given("save_steps") || is_given("save_strategy");
    if (!asked && !theirs_) return;
    if (strategy("save_strategy", "save_steps", "steps") == "no") {
      add("save_strategy", "", "checkpoint.every", "0");
      return idle("save_steps", "save_strategy is no");
    }
    const Foreign* steps = find("save_steps");
    if (steps || theirs_) add("save_steps", "500", "checkpoint.every", steps ? every("save_steps", *steps) : "500");
    idle("save_strategy", "checkpoint.every says when");
  }

  void evaluations() {
    const char* const name = is_given("evaluation_strategy") ? "evaluation_strategy" : "eval_strategy";
    const Foreign *steps = find("eval_steps"), *logging = find("logging_steps");
    const std::string when = strategy(name, "eval_steps", theirs_ ? "no" : "steps");
    if (when == "no") {
      if (is_given(name) || theirs_) add(name, "no", "eval.every", "0", "at the end, where there is data for it");
      idle("eval_steps", fmt::format("{} is no", name));
    } else {
      if (steps && is_on(*steps))
        add("eval_steps", "", "eval.every", every("eval_steps", *steps));
      else if (theirs_)
        add("logging_steps", "500", "eval.every", logging ? every("logging_steps", *logging) : "500",
            "eval_steps is not given");
      idle(name, "eval.every says when");
    }
    const bool named = !out_.empty() && out_.back().from == "logging_steps";
    if (!named) idle("logging_steps", "every step is logged");
  }

  void resume() {
    const Foreign* value = find("resume_from_checkpoint");
    if (!value) return idle("resume_from_checkpoint", "give --resume to go on");
    if (value->text.find('/') != std::string::npos || value->text.find("checkpoint") != std::string::npos)
      fail_config(
          fmt::format("{}: resume_from_checkpoint is '{}', expected true or false: a run goes on from the newest "
                      "checkpoint of its output_dir; to go on from an older one, move the newer ones away",
                      value->where, value->text));
    const bool on = foreign_flag("resume_from_checkpoint", *value);
    add("resume_from_checkpoint", "", "resume", on ? "true" : "false",
        on ? "from the newest checkpoint of run_dir" : "");
  }

  // There, what stands at tokenized_path is the dataset, and `dataset` is not read.
  void check_tokenized() const {
    const Foreign* value = find("tokenized_path");
    std::error_code none;
    if (value && std::filesystem::exists(value->text, none))
      fail_config(
          fmt::format("{}: tokenized_path {} is there, and LLaMA-Factory would train on it alone; megatrain reads "
                      "`dataset` and keeps its own cache: drop this key",
                      value->where, value->text));
  }

  // What no key of theirs says.
  void counting() {
    const auto rule = [this](const char* theirs, const char* key, const char* text, const char* note) {
      out_.push_back({.from = theirs, .theirs = theirs, .key = key, .text = text, .note = note, .given = false});
    };
    if (!own_.count("seed")) add("seed", "42", "seed", "42", "the order of the samples is another");
    rule("(steps and warmup)", "conventions", "transformers", "");
    rule("(samples that are too long)", "data.overlong", "by_turn",
         flag("mask_history")      ? "the end of what comes before the last answer is kept"
         : flag("train_on_prompt") ? "the first seq_len tokens are kept"
                                   : "");
  }

  const ForeignKeys& given_;
  const bool theirs_;
  const std::set<std::string>& own_;
  std::vector<Translation> out_;
};

}  // namespace

std::string translation_table(const std::vector<TranslationRow>& rows) {
  constexpr size_t kWidest = 56;  // longer cells push the rest of their row to the right
  size_t theirs = 0, here = 0;
  for (const TranslationRow& row : rows) {
    if (row.theirs.size() <= kWidest) theirs = std::max(theirs, row.theirs.size());
    if (row.here.size() <= kWidest) here = std::max(here, row.here.size());
  }
  std::string text;
  const auto add = [&](const TranslationRow& row) {
    text += escape_line(fmt::format("{:{}}  {:{}}  {}", row.theirs, theirs, row.here, here, row.from)) + '\n';
  };
  add({"theirs", "here", "given or default"});
  for (const TranslationRow& row : rows) add(row);
  return text;
}

std::vector<Translation> translate(const ForeignKeys& given, bool theirs, const std::set<std::string>& own) {
  refuse_methods(given);
  return Translator(given, theirs, own).run();
}

}  // namespace megatrain
