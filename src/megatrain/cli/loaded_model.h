// A model ready to answer, shared by `generate`, `eval`, `chat` and `serve`.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/config/adapter_file.h"
#include "megatrain/config/arguments.h"
#include "megatrain/config/config.h"
#include "megatrain/generate/answer.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/store/record.h"
#include "megatrain/train/setup.h"

namespace megatrain {

// The verb's own options plus those that LoadedModel reads.
std::vector<std::string> with_loaded_model_options(std::vector<std::string> options);

// A Hugging Face or PEFT directory, a name in the Hugging Face cache, or the model of a finished run. Throws
// Error(bad_input).
std::string model_directory(const std::string& given);

class LoadedModel {
 public:
  // Reads only small files; generator_for() and generator_with() load the weights.
  LoadedModel(const std::string& name, const Arguments& arguments, const std::string& verb);

  const ModelText& text() const { return text_; }
  const ModelConfig& config() const { return config_; }
  const TrainConfig& settings() const { return settings_; }  // model path, precision, device, threads, memory

  // Adapters that requests may choose over this base, which must have none itself. Call it before the generator is
  // made. Throws Error(bad_input) for what is no adapter of this base, and for one that replaces tensors of the base
  // (modules_to_save). Returns what belongs to its text.
  const ModelText& add_adapter(const std::string& given);

  // Tokenises the prompt. Throws Error(bad_input) when it leaves no room in the model's context. `where` begins the
  // message: "FILE:LINE: " or empty.
  Prompt prompt(const std::string& text, const std::string& where) const;
  Prompt chat_prompt(const nlohmann::ordered_json& messages, const std::string& where) const;

  // Loads the weights and allocates for these prompts, as many at once as fit.
  Generator& generator_for(const std::vector<Prompt>& prompts);

  // The same for prompts that are not known yet. Given values are used as they are: throws Error(bad_config) for a
  // context beyond the model's, and Error(cannot_fit). Defaults are kDefaultContext tokens and `default_sequences`,
  // reduced if they do not fit. `logits_bytes` as in GeneratorOptions.
  static constexpr int64_t kDefaultContext = 8192;
  Generator& generator_with(std::optional<int64_t> context, std::optional<int64_t> sequences, int64_t default_sequences,
                            int64_t logits_bytes = 0);

 private:
  void check(const Prompt& prompt, const std::string& where) const;
  AdapterRules adapters() const;
  void add_end_ids_of_base(ModelText& text) const;
  void load_choices();
  int64_t device_memory() const;
  void load();
  bool fits(const GeneratorOptions& options) const;
  Generator& make_generator(const GeneratorOptions& options);

  std::string directory_;
  std::optional<AdapterFile> adapter_;  // if the directory is a PEFT directory
  std::string base_;                    // the directory of the weights
  ModelConfig config_;
  ModelText text_;
  TrainConfig settings_;
  DType dtype_ = DType::bf16;
  Machine machine_;
  std::vector<LayerRecord> records_;
  struct Choice {
    std::string directory;
    AdapterRules rules;
    ModelText text;
    std::vector<LayerRecord> records = {};
  };
  std::list<Choice> choices_;
  int64_t weight_bytes_ = 0;
  double load_start_s_ = 0;
  std::unique_ptr<Generator> generator_;
};

}  // namespace megatrain
