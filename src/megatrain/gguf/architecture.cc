#include "megatrain/gguf/architecture.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"

namespace megatrain {
namespace {

constexpr int64_t kGemmaPeriod = 6;     // every so many layers one is global, where the file does not say otherwise
constexpr int64_t kGemma27Layers = 62;  // llama.cpp knows Gemma 3 27B by it
constexpr double kSwigluLimit = 7;      // of gpt-oss, in llama.cpp's code

[[noreturn]] void refuse(const ModelConfig& c, const std::string& what) {
  fail_input(
      fmt::format("a {} {}; llama.cpp has no such model, so it cannot be exported to GGUF", c.architecture, what));
}

void check_heads_fill_hidden(const ModelConfig& c) {
  if (c.q_dim() != c.hidden)
    refuse(c, fmt::format("with heads of {} elements together ({} of {}) and a hidden_size of {}", c.q_dim(), c.heads,
                          c.head_dim, c.hidden));
}

bool close(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

// Layers 0 to period - 2 of every period are local.
bool windows_repeat(const ModelConfig& c, int64_t period) {
  for (int64_t l = 0; l < c.layers; ++l) {
    if ((c.window[static_cast<size_t>(l)] > 0) != ((l + 1) % period != 0)) return false;
  }
  return true;
}

void check_gemma3(const ModelConfig& c) {
  const double scale = c.layers == kGemma27Layers
                           ? 1 / std::sqrt(static_cast<double>(c.hidden) / static_cast<double>(c.heads))
                           : 1 / std::sqrt(static_cast<double>(c.head_dim));
  if (!close(c.attention_scale, scale))
    refuse(c, fmt::format("with a query_pre_attn_scalar of {:g} (llama.cpp takes {:g} here)",
                          1 / (c.attention_scale * c.attention_scale), 1 / (scale * scale)));
  if (c.window_rope && c.window_rope->scaling != RopeScaling::none) refuse(c, "whose local layers scale RoPE");
  if (c.rope.scaling != RopeScaling::none && c.rope.scaling != RopeScaling::linear)
    refuse(c, "with another RoPE scaling than linear");
}

void check_gpt_oss(const ModelConfig& c) {
  if (c.tied) refuse(c, "with a head that is the embedding (tie_word_embeddings)");
  if (!c.qkv_bias) refuse(c, "without attention_bias");
  if (c.experts.gate.limit != static_cast<float>(kSwigluLimit))
    refuse(c, fmt::format("with a swiglu_limit of {:g} (llama.cpp takes {:g})", c.experts.gate.limit, kSwigluLimit));
  if (!windows_repeat(c, 2)) refuse(c, "with other layer_types than sliding_attention in every second layer");
}

void check_qwen3_moe(const ModelConfig& c) {
  if (c.o_bias) refuse(c, "with attention_bias");
  if (c.experts.score != RouterScore::softmax_of_chosen) refuse(c, "with norm_topk_prob: false");
  if (std::any_of(c.experts.layers.begin(), c.experts.layers.end(), [](bool has) { return !has; }))
    refuse(c, "with dense layers between those with experts (mlp_only_layers, decoder_sparse_step)");
}

struct KnownArchitecture {
  const char* name;
  void (*check)(const ModelConfig&);
  bool window;  // llama.cpp obeys sliding windows
};

const KnownArchitecture& known(const ModelConfig& c) {
  static const auto nothing = [](const ModelConfig&) {};
  static const std::map<std::string, KnownArchitecture> list = {
      {"LlamaForCausalLM", {"llama", nothing, false}},
      {"MistralForCausalLM", {"llama", nothing, false}},
      {"MixtralForCausalLM", {"llama", nothing, false}},
      {"Qwen2ForCausalLM", {"qwen2", check_heads_fill_hidden, false}},
      {"Qwen3ForCausalLM",
       {"qwen3",
        [](const ModelConfig& config) {
          if (config.o_bias) refuse(config, "with attention_bias");
        },
        false}},
      {"Qwen3MoeForCausalLM", {"qwen3moe", check_qwen3_moe, false}},
      {"Gemma3ForCausalLM", {"gemma3", check_gemma3, true}},
      {"Phi3ForCausalLM", {"phi3", check_heads_fill_hidden, false}},
      {"GptOssForCausalLM", {"gpt-oss", check_gpt_oss, true}},
  };
  const auto found = list.find(c.architecture);
  if (found == list.end())
    fail_input(
        fmt::format("megatrain does not know how llama.cpp calls {}, so it cannot be exported to GGUF; export it "
                    "without --gguf and try llama.cpp's own conversion",
                    c.architecture));
  return found->second;
}

class Keys {
 public:
  Keys(std::string prefix, GgufMetadata& metadata) : prefix_(std::move(prefix)), metadata_(metadata) {}
  void whole(const char* key, int64_t value) {
    if (value > UINT32_MAX) fail_input(fmt::format("{} would be {}, above what a GGUF file's key holds", key, value));
    add(key, static_cast<uint32_t>(value));
  }
  void number(const char* key, double value) { add(key, static_cast<float>(value)); }
  void text(const char* key, std::string value) { add(key, std::move(value)); }

 private:
  void add(const char* key, GgufValue value) { metadata_.add(prefix_ + key, std::move(value)); }

  std::string prefix_;
  GgufMetadata& metadata_;
};

// What llama.cpp multiplies cos and sin by where it scales by YaRN.
double own_yarn_factor(double factor) { return 1 + 0.1 * std::log(factor); }

void add_rope(const ModelConfig& c, Keys& keys) {
  const RopeConfig& rope = c.rope;
  keys.number("rope.freq_base", rope.theta);
  keys.whole("rope.dimension_count", rope.turning(c.head_dim));
  switch (rope.scaling) {
    case RopeScaling::none:
    case RopeScaling::llama3: break;  // its factors are a tensor
    case RopeScaling::linear:
      keys.text("rope.scaling.type", "linear");
      keys.number("rope.scaling.factor", rope.factor);
      break;
    case RopeScaling::yarn:
      keys.text("rope.scaling.type", "yarn");
      keys.number("rope.scaling.factor", rope.factor);
      keys.whole("rope.scaling.original_context_length", static_cast<int64_t>(rope.original_max_position));
      keys.number("rope.scaling.yarn_beta_fast", rope.beta_fast);
      keys.number("rope.scaling.yarn_beta_slow", rope.beta_slow);
      keys.number("rope.scaling.attn_factor", rope.attention_factor / own_yarn_factor(rope.factor));
      if (!rope.truncate)
        log_info(
            "llama.cpp rounds the ends of YaRN's ramp to whole pairs, which this model does not (truncate: false): its "
            "answers are close to the model's own, not the same");
      break;
    case RopeScaling::longrope:
      keys.text("rope.scaling.type", "longrope");
      keys.whole("rope.scaling.original_context_length", static_cast<int64_t>(rope.original_max_position));
      keys.number("rope.scaling.attn_factor", rope.attention_factor);
      break;
  }
}

// The window of the layers that have one.
int64_t window_of(const ModelConfig& c) { return *std::max_element(c.window.begin(), c.window.end()); }

int64_t context_of(const ModelConfig& c, bool obeys_windows) {
  const int64_t window = window_of(c);
  if (obeys_windows || window == 0 || window >= c.max_position) return c.max_position;
  log_warn(
      fmt::format("llama.cpp has no sliding window for a {}: the file's context ends with the window, at {} of {} "
                  "tokens, within which both compute the same",
                  c.architecture, window, c.max_position));
  return window;
}

void add_windows(const ModelConfig& c, const std::string& architecture, Keys& keys) {
  if (architecture == "phi3") keys.whole("attention.sliding_window", 0);
  if (architecture == "gpt-oss") keys.whole("attention.sliding_window", window_of(c));
  if (architecture != "gemma3" || window_of(c) == 0) return;
  keys.whole("attention.sliding_window", window_of(c));
  keys.number("rope.freq_base_swa", c.window_rope.value_or(c.rope).theta);
  if (windows_repeat(c, kGemmaPeriod)) return;
  int64_t period = 1;
  while (period <= c.layers && !windows_repeat(c, period)) ++period;
  if (period > c.layers) refuse(c, "whose global layers do not stand at every n-th place (layer_types)");
  keys.whole("attention.sliding_window_pattern", period);
}

}  // namespace

std::string gguf_architecture(const ModelConfig& config) {
  const KnownArchitecture& architecture = known(config);
  architecture.check(config);
  return architecture.name;
}

void add_architecture(const ModelConfig& c, GgufMetadata& metadata) {
  const std::string name = gguf_architecture(c);
  metadata.add("general.architecture", name);
  Keys keys(name + ".", metadata);
  keys.whole("block_count", c.layers);
  keys.whole("context_length", context_of(c, known(c).window));
  keys.whole("embedding_length", c.hidden);
  keys.whole("feed_forward_length", c.ff);
  keys.whole("attention.head_count", c.heads);
  keys.whole("attention.head_count_kv", c.kv_heads);
  keys.whole("attention.key_length", c.head_dim);
  keys.whole("attention.value_length", c.head_dim);
  keys.number("attention.layer_norm_rms_epsilon", c.norm_eps);
  keys.whole("vocab_size", c.vocab);
  add_rope(c, keys);
  add_windows(c, name, keys);
  if (c.experts.count == 0) return;
  keys.whole("expert_count", c.experts.count);
  keys.whole("expert_used_count", c.experts.chosen);
  if (name != "llama") keys.whole("expert_feed_forward_length", c.experts.ff);
}

}  // namespace megatrain
