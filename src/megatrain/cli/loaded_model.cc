#include "megatrain/cli/loaded_model.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/clock.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/shell_word.h"
#include "megatrain/base/units.h"
#include "megatrain/host/memory.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/model.h"
#include "megatrain/run/best_model.h"
#include "megatrain/run/run_files.h"
#include "megatrain/train/adapter_files.h"
#include "megatrain/train/planned_machine.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostAtOnce = 32;  // sequences
constexpr const char* kModelOptions[] = {"--device", "--precision", "--memory.gpu", "--threads"};

ModelConfig read_config(const std::string& directory) {
  const std::string path = directory + "/config.json";
  return parse_model_config(read_json_file(path), path);
}

std::optional<AdapterFile> adapter_of(const std::string& directory) {
  if (!is_adapter_directory(directory)) return {};
  return read_adapter_file(directory);
}

// The directory of the model that the adapters belong to, or the model's own.
std::string base_of(const std::string& directory, const std::optional<AdapterFile>& adapter) {
  if (!adapter) return directory;
  if (adapter->base.empty())
    fail_input(
        fmt::format("{0}/{1} names no base model, as its base had random weights; write the base's directory as "
                    "base_model_name_or_path there",
                    directory, kAdapterFile));
  const std::string base = find_model(adapter->base, ModelParts::weights);
  if (!fs::is_directory(base))
    fail_input(
        fmt::format("{}/{} names the base model {}, which is not there; bring it back, or write where it is now as "
                    "base_model_name_or_path",
                    directory, kAdapterFile, base));
  return base;
}

// Where the tokenizer is: beside the adapters if they came with one.
std::string text_directory(const std::string& directory, const std::string& base) {
  return fs::exists(directory + "/tokenizer.json") ? directory : base;
}

}  // namespace

std::vector<std::string> with_loaded_model_options(std::vector<std::string> options) {
  for (const char* option : kModelOptions) options.push_back(option);
  return options;
}

std::string model_directory(const std::string& given) {
  const std::string name = find_model_or_adapter(given, ModelParts::weights);
  if (is_adapter_directory(name)) return name;
  if (!fs::is_directory(name))
    fail_input(fmt::format("{} is not a directory; give a Hugging Face model directory or a run directory", name));
  if (fs::exists(name + "/config.json")) return name;
  if (const auto best = find_best_model(name)) {
    log_info(fmt::format("using {}, of step {}, whose evaluation loss {:.4f} is the run's lowest{}", best->path,
                         best->step, best->loss,
                         fs::exists(name + "/model") ? fmt::format("; for the last model give {}/model", name) : ""));
    return best->path;
  }
  if (is_model_directory(name + "/model")) return name + "/model";
  if (is_run_directory(name)) {
    if (const std::string lost = describe_lost_model(read_run(name)); !lost.empty()) fail_input(lost);
    fail_input(
        fmt::format("{} is a run that has not finished, so it has no model yet; finish it with 'megatrain train "
                    "CONFIG.yaml --resume', or export its newest checkpoint: megatrain export {} --out DIR",
                    name, shell_word(name)));
  }
  fail_input(
      fmt::format("{} has neither config.json nor model/config.json; give a Hugging Face model directory or a run "
                  "directory",
                  name));
}

LoadedModel::LoadedModel(const std::string& name, const Arguments& arguments, const std::string& verb)
    : directory_(model_directory(name)),
      adapter_(adapter_of(directory_)),
      base_(base_of(directory_, adapter_)),
      config_(read_config(base_)),
      text_(ModelText::load(text_directory(directory_, base_))) {
  std::vector<std::string> overrides;
  for (const std::string option : kModelOptions) {
    if (const auto value = arguments.option(option)) overrides.push_back(option + "=" + *value);
  }
  settings_ = parse_config("", verb, overrides, {.model = false, .data = false, .steps = false});
  if (arguments.option("--precision")) {
    dtype_ = settings_.precision == "fp32" ? DType::f32 : DType::bf16;
  } else {
    dtype_ = config_.dtype == DType::f32 ? DType::f32 : DType::bf16;
    settings_.precision = dtype_ == DType::f32 ? "fp32" : "bf16";
  }
  settings_.model.path = base_;
  if (!adapter_) return;
  add_end_ids_of_base(text_);
  settings_.model.adapter = directory_;
  settings_.adapter = adapter_->settings;
}

void LoadedModel::check(const Prompt& prompt, const std::string& where) const {
  const int64_t tokens = static_cast<int64_t>(prompt.ids.size());
  if (tokens == 0) fail_input(fmt::format("{}the prompt has no tokens; give some text to continue", where));
  if (tokens >= config_.max_position) {
    fail_input(
        fmt::format("{}the prompt has {} tokens, but the model's context of {} must hold the answer too; shorten it",
                    where, tokens, config_.max_position));
  }
}

Prompt LoadedModel::prompt(const std::string& text, const std::string& where) const {
  Prompt prompt{.ids = text_.tokenizer.encode(text, true)};
  check(prompt, where);
  return prompt;
}

Prompt LoadedModel::chat_prompt(const nlohmann::ordered_json& messages, const std::string& where) const {
  Prompt prompt{.chat = true};
  try {
    prompt.ids = text_.encode_chat(messages);
  } catch (const Error& error) {
    fail(error.code(), where + error.what());
  }
  check(prompt, where);
  return prompt;
}

// Device memory that this process may still use.
int64_t LoadedModel::device_memory() const {
  const int64_t budget = make_budgets(settings_, this_machine(machine_, settings_.threads)).gpu_bytes;
  if (machine_.device->kind() == DeviceKind::cpu) return budget;
  constexpr int64_t kLoadedLater = 192 * kMiB;  // kernels are loaded when they are first called
  return budget - machine_.device->memory_used() - kLoadedLater;
}

// The base's own files also say what ends an answer.
void LoadedModel::add_end_ids_of_base(ModelText& text) const {
  if (text.path == base_ || !fs::exists(base_ + "/tokenizer.json")) return;
  const ModelText of_base = ModelText::load(base_);
  text.end_ids.insert(of_base.end_ids.begin(), of_base.end_ids.end());
  text.chat_end_ids.insert(of_base.end_ids.begin(), of_base.end_ids.end());
}

const ModelText& LoadedModel::add_adapter(const std::string& given) {
  const std::string directory = model_directory(given);
  if (adapter_)
    fail_config(fmt::format("{} is an adapter itself; give its base, {}, and every adapter by --adapter NAME=DIR",
                            directory_, base_));
  if (!is_adapter_directory(directory))
    fail_input(fmt::format("{} is no adapter: it has no {}; give a PEFT directory", directory, kAdapterFile));
  const AdapterFile file = read_adapter_file(directory);
  warn_of_other_base(directory, file, base_);
  const AdapterRules rules = adapter_rules(file.settings, true);
  const std::vector<LayerLayout> layouts = model_layouts(config_, dtype_, {.adapter = rules});
  std::vector<std::string> reasons;
  if (std::ranges::any_of(layouts, adapts_experts))
    reasons.emplace_back("adapters of experts, which no request can choose");
  if (!file.settings.also_train.empty()) reasons.emplace_back("modules_to_save, which replace tensors of the base");
  if (file.settings.bias != "none") reasons.emplace_back("biases, which replace tensors of the base");
  if (!reasons.empty())
    fail_input(fmt::format("{}/{} has {}; serve this adapter alone: megatrain serve {}", directory, kAdapterFile,
                           fmt::join(reasons, ", and "), shell_word(directory)));
  check_adapter(directory, rules, layouts);
  verify_model_of_run(directory);
  Choice& choice = choices_.emplace_back(
      Choice{.directory = directory, .rules = rules, .text = ModelText::load(text_directory(directory, base_))});
  add_end_ids_of_base(choice.text);
  return choice.text;
}

// The adapters' own records, beside those of the base.
void LoadedModel::load_choices() {
  for (Choice& choice : choices_) {
    std::vector<LayerLayout> layouts = weights_only(model_layouts(config_, dtype_, {.adapter = choice.rules}));
    std::erase_if(layouts, [](const LayerLayout& layout) { return !layout.is_adapter(); });
    choice.records = make_records(*machine_.device, layouts, std::vector<Tier>(layouts.size(), Tier::host));
    load_adapter(choice.directory, choice.rules, choice.records, static_cast<int>(settings_.threads));
  }
}

AdapterRules LoadedModel::adapters() const { return adapter_rules(settings_.adapter, true); }

void LoadedModel::load() {
  check_weights(base_, config_);
  verify_model_of_run(directory_);
  machine_ = open_machine(settings_.device, settings_.threads);
  const std::vector<LayerLayout> layouts = weights_only(model_layouts(config_, dtype_, {.adapter = adapters()}));
  for (const LayerLayout& layout : layouts) weight_bytes_ += layout.elements * dtype_bytes(dtype_);
  if (weight_bytes_ > host_memory_available()) {
    fail(ExitCode::cannot_fit,
         fmt::format("the weights take {} of host memory in {}, and {} is available. Generation holds all of them in "
                     "memory; only training reads weights from disk{}",
                     format_bytes(weight_bytes_), dtype_name(dtype_), format_bytes(host_memory_available()),
                     dtype_ == DType::f32 ? ". --precision=bf16 needs half" : ""));
  }
  load_start_s_ = now_s();
  records_ = make_records(*machine_.device, layouts, std::vector<Tier>(layouts.size(), Tier::host));
  load_weights(base_, records_, static_cast<int>(settings_.threads));
  if (adapter_) load_adapter(directory_, adapters(), records_, static_cast<int>(settings_.threads));
  load_choices();
}

bool LoadedModel::fits(const GeneratorOptions& options) const {
  return CachedForward::least_bytes(*machine_.device, *machine_.ops, config_, records_, options) <=
         options.memory_bytes;
}

Generator& LoadedModel::make_generator(const GeneratorOptions& options) {
  generator_ = std::make_unique<Generator>(*machine_.device, *machine_.ops, config_, records_, options);
  const DeviceWeights& weights = generator_->forward().weights();
  log_info(fmt::format("loaded {} in {} ({}) in {:.1f} s; {} of {} pieces of the weights stay on the device",
                       directory_, dtype_name(dtype_), format_bytes(weight_bytes_), now_s() - load_start_s_,
                       weights.resident_ranges(), weights.ranges()));
  return *generator_;
}

Generator& LoadedModel::generator_for(const std::vector<Prompt>& prompts) {
  load();
  GeneratorOptions options{.max_context = context_of(prompts, config_.max_position),
                           .max_batch = std::clamp<int64_t>(static_cast<int64_t>(prompts.size()), 1, kMostAtOnce),
                           .memory_bytes = device_memory(),
                           .adapter = adapters()};
  while (options.max_batch > 1 && !fits(options)) options.max_batch /= 2;
  return make_generator(options);
}

Generator& LoadedModel::generator_with(std::optional<int64_t> context, std::optional<int64_t> sequences,
                                       int64_t default_sequences, int64_t logits_bytes) {
  constexpr int64_t kLeastContext = 256;
  if (context && (*context < 2 || *context > config_.max_position))
    fail_config(fmt::format("--context is {}; expected 2 to {}, the model's own", *context, config_.max_position));
  load();
  GeneratorOptions options{.max_context = context.value_or(std::min(config_.max_position, kDefaultContext)),
                           .max_batch = sequences.value_or(default_sequences),
                           .memory_bytes = device_memory(),
                           .adapter = adapters(),
                           .logits_bytes = logits_bytes};
  for (const Choice& choice : choices_) options.choices.push_back({.rules = choice.rules, .records = &choice.records});
  while (!sequences && options.max_batch > 1 && !fits(options)) options.max_batch /= 2;
  while (!context && options.max_context >= 2 * kLeastContext && !fits(options)) options.max_context /= 2;
  return make_generator(options);
}

}  // namespace megatrain
