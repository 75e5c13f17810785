#include "megatrain/gguf/architecture.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"

namespace megatrain {
namespace {

class Keys {
 public:
  Keys(std::string prefix, GgufMetadata& metadata) : prefix_(std::move(prefix)), metadata_(metadata) {}
  void whole(const char* key, int64_t value) {
    if (value > UINT32_MAX)
      fail_input(fmt::format("{} would be {}, more than a key of a GGUF file can hold", key, value));
    add(key, static_cast<uint32_t>(value));
  }
  void number(const char* key, double value) { add(key, static_cast<float>(value)); }
  void text(const char* key, std::string value) { add(key, std::move(value)); }

 private:
  void add(const char* key, GgufValue value) { metadata_.add(prefix_ + key, std::move(value)); }

  std::string prefix_;
  GgufMetadata& metadata_;
};

// The factor that llama.cpp itself applies to cos and sin under YaRN scaling.
double own_yarn_factor(double factor) { return 1 + 0.1 * std::log(factor); }

void add_rope(const ModelConfig& c, Keys& keys) {
  const RopeConfig& rope = c.rope;
  keys.number("rope.freq_base", rope.theta);
  keys.whole("rope.dimension_count", rope.turning(c.head_dim));
  switch (rope.scaling) {
    case RopeScaling::none:
    case RopeScaling::llama3: break;  // llama3's factors are written as a tensor
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
    case RopeScaling::proportional: ensure(false, "no family with llama.cpp's support turns some pairs only"); break;
  }
}

int64_t context_of(const ModelConfig& c, bool obeys_windows) {
  const int64_t window = c.longest_window();
  if (obeys_windows || window == 0 || window >= c.max_position) return c.max_position;
  log_warn(
      fmt::format("llama.cpp has no sliding window for a {}: the file's context ends with the window, at {} of {} "
                  "tokens, within which both compute the same",
                  c.architecture, window, c.max_position));
  return window;
}

void add_own_keys(const ModelConfig& c, const LlamaCpp& family, Keys& keys) {
  if (!family.keys) return;
  for (const auto& [key, value] : family.keys(c)) {
    if (const int64_t* whole = std::get_if<int64_t>(&value))
      keys.whole(key.c_str(), *whole);
    else
      keys.number(key.c_str(), std::get<double>(value));
  }
}

}  // namespace

const LlamaCpp& llama_cpp_of(const Family& family) {
  if (!family.llama_cpp)
    fail_input(
        fmt::format("megatrain does not know how llama.cpp calls {}, so it cannot be exported to GGUF; export it "
                    "without --gguf and try llama.cpp's own conversion",
                    family.architecture));
  return *family.llama_cpp;
}

const LlamaCpp& gguf_family(const ModelConfig& config) {
  const LlamaCpp& family = llama_cpp_of(family_of(config));
  const std::string unlike = family.unlike ? family.unlike(config) : "";
  if (!unlike.empty())
    fail_input(fmt::format("a {} {}; llama.cpp has no such model, so it cannot be exported to GGUF",
                           config.architecture, unlike));
  return family;
}

void add_architecture(const ModelConfig& c, GgufMetadata& metadata) {
  const LlamaCpp& family = gguf_family(c);
  metadata.add("general.architecture", family.name);
  Keys keys(family.name + ".", metadata);
  keys.whole("block_count", c.layers);
  keys.whole("context_length", context_of(c, family.has_windows));
  keys.whole("embedding_length", c.hidden);
  keys.whole("feed_forward_length", c.ff);
  keys.whole("attention.head_count", c.heads);
  keys.whole("attention.head_count_kv", c.kv_heads);
  keys.whole("attention.key_length", c.head_dim);
  keys.whole("attention.value_length", c.head_dim);
  keys.number("attention.layer_norm_rms_epsilon", c.norm_eps);
  keys.whole("vocab_size", c.vocab);
  add_rope(c, keys);
  add_own_keys(c, family, keys);
  if (c.experts.count == 0) return;
  keys.whole("expert_count", c.experts.count);
  keys.whole("expert_used_count", c.experts.chosen);
  if (!family.is_llama) keys.whole("expert_feed_forward_length", c.experts.ff);
}

}  // namespace megatrain
