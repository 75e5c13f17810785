#include "megatrain/model/parts/latent_family.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

// YaRN's factor for the softmax, beside that of cos and sin: it belongs to queries and keys alike.
double softmax_factor(const ConfigReader& r, const RopeConfig& rope) {
  if (rope.scaling == RopeScaling::none) return 1;
  if (rope.scaling != RopeScaling::yarn) fail_input(r.where() + ": latent attention's RoPE has no scaling but yarn");
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!r.has(key)) continue;
    const double all = ConfigReader(r.at(key), fmt::format("{}: {}", r.where(), key)).number("mscale_all_dim", 0);
    const double factor = all == 0 || rope.factor <= 1 ? 1 : 0.1 * all * std::log(rope.factor) + 1;
    return factor * factor;
  }
  return 1;
}

}  // namespace

std::vector<std::string> latent_fields(std::vector<std::string> more) {
  for (const char* field : {"kv_lora_rank", "q_lora_rank", "qk_head_dim", "qk_nope_head_dim", "qk_rope_head_dim",
                            "rope_interleave", "v_head_dim"})
    more.emplace_back(field);
  return more;
}

void read_latent_sizes(const ConfigReader& r, const AbsentLatent& absent, ModelConfig& c) {
  for (const char* key : {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) r.refuse_null(key);
  LatentConfig& l = c.latent;
  l.kv_rank = r.positive("kv_lora_rank", absent.kv_rank, kMaxWidth);
  const bool whole_queries = r.object().contains("q_lora_rank") && !r.has("q_lora_rank");
  l.q_rank = whole_queries ? 0 : r.positive("q_lora_rank", absent.q_rank, kMaxWidth);
  l.plain = r.positive("qk_nope_head_dim", absent.plain, kMaxWidth);
  l.turning = r.positive("qk_rope_head_dim", absent.turning, kMaxWidth);
  l.value = r.positive("v_head_dim", absent.value, kMaxWidth);
  l.pairs = r.boolean("rope_interleave", true);
  const int64_t head = l.plain + l.turning;
  if (l.turning % 2 != 0)
    fail_input(fmt::format("{}: qk_rope_head_dim is {}; rotary embedding needs an even one", r.where(), l.turning));
  if (l.value > head)
    fail_input(
        fmt::format("{}: v_head_dim is {}; values wider than keys ({} + {} elements of a head) are not supported",
                    r.where(), l.value, l.plain, l.turning));
  for (const auto& [key, of] : {std::pair{"qk_head_dim", head}, {"head_dim", l.turning}}) {
    // Written by versions of transformers that differ in what head_dim is.
    if (r.has(key) && r.at(key) != json(of) && !(std::string(key) == "head_dim" && r.at(key) == json(head)))
      fail_input(
          fmt::format("{}: '{}' is {}, but a head's elements are {} and {} that RoPE rotates; correct the wrong "
                      "one",
                      r.where(), key, r.at(key).dump(), l.plain, l.turning));
  }
  json sizes = r.object();
  sizes["head_dim"] = head;
  read_sizes(ConfigReader(sizes, r.where()), {.max_position = absent.max_position}, c);
  if (c.kv_heads != c.heads)
    fail_input(
        fmt::format("{}: num_key_value_heads is {}; in latent attention every head has its own key, so it must "
                    "be {}",
                    r.where(), c.kv_heads, c.heads));
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  if (c.qkv_bias && l.q_rank == 0)
    fail_input(r.where() + ": 'attention_bias' is true without a q_lora_rank, which is not supported");
  must_be(r, "mlp_bias", false, c.architecture);
  c.window = read_no_window(r, c);
  set_latent_rope(r, parse_rope(r, c.max_position), c);
}

void set_latent_rope(const ConfigReader& r, RopeConfig rope, ModelConfig& c) {
  rope.rotary_dim = c.latent.turning;
  c.attention_scale = softmax_factor(r, rope) / std::sqrt(static_cast<double>(c.head_dim));
  c.rope = std::move(rope);
}

}  // namespace megatrain
