#include "megatrain/model/parts/rope_config.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/layers/rope_table.h"

namespace megatrain {
namespace {

using nlohmann::json;

double yarn_attention_factor(const ConfigReader& rope, double factor) {
  const auto mscale = [&](double weight) { return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0; };
  if (rope.has("attention_factor")) return rope.positive_number("attention_factor", 1.0);
  const double all = rope.number("mscale_all_dim", 0), one = rope.number("mscale", 0);
  return all != 0 && one != 0 ? mscale(one) / mscale(all) : mscale(1.0);
}

// Parses one of the two objects; `theta` is used if it has no rope_theta.
RopeConfig parse_object(const ConfigReader& r, const ConfigReader& model, double theta, int64_t max_position) {
  RopeConfig rope;
  for (const char* key : {"rope_theta", "rope_type"}) r.refuse_null(key);
  rope.theta = r.positive_number("rope_theta", theta);
  if (r.number("partial_rotary_factor", 1.0) != 1.0)
    fail_input(fmt::format("{}: 'partial_rotary_factor' is {}; megatrain supports only 1.0 here", r.where(),
                           r.at("partial_rotary_factor").dump()));
  const std::string type = r.string("rope_type", r.string("type", "default"));
  if (r.string("type", type) != type)
    fail_input(
        fmt::format("{}: 'rope_type' is '{}' and 'type' is '{}'; transformers versions disagree on which one to use: "
                    "remove the wrong one",
                    r.where(), type, r.string("type", "")));
  const auto require = [&](const char* name) {
    if (!r.has(name)) fail_input(fmt::format("{}: '{}' is missing; scaling '{}' needs it", r.where(), name, type));
  };
  std::vector<std::string> known = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
  const auto add = [&](std::initializer_list<const char*> names) {
    known.insert(known.end(), names.begin(), names.end());
  };

  // The model's field is used if the scaling has none, and max_position_embeddings if both are absent.
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const auto original = [&] {
    r.refuse_null(kOriginal);
    const double own =
        r.positive_number(kOriginal, model.positive_number(kOriginal, static_cast<double>(max_position)));
    if (model.positive_number(kOriginal, own) != own)
      fail_input(
          fmt::format("{}: '{}' is {} and that of {} is {}; transformers versions disagree on which one to use: "
                      "remove the wrong one",
                      model.where(), kOriginal, model.at(kOriginal).dump(), r.where(), own));
    add({kOriginal});
    return own;
  };
  if (type == "default") {
    rope.scaling = RopeScaling::none;
  } else if (type == "linear") {
    require("factor");
    rope.scaling = RopeScaling::linear;
    rope.factor = r.positive_number("factor", 1.0);
    add({"factor"});
  } else if (type == "llama3") {
    for (const char* name : {"factor", "low_freq_factor", "high_freq_factor"}) require(name);
    rope.scaling = RopeScaling::llama3;
    rope.factor = r.positive_number("factor", 1.0);
    rope.low_freq_factor = r.positive_number("low_freq_factor", 1.0);
    rope.high_freq_factor = r.positive_number("high_freq_factor", 4.0);
    rope.original_max_position = original();
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      fail_input(fmt::format("{}: high_freq_factor ({}) must be above low_freq_factor ({})", r.where(),
                             rope.high_freq_factor, rope.low_freq_factor));
    }
    add({"factor", "low_freq_factor", "high_freq_factor"});
  } else if (type == "yarn") {
    if (!r.object().contains("factor")) require("factor");  // if it is null, it is the ratio of the two lengths
    if (rope.theta == 1)
      fail_input(fmt::format("{}: 'rope_theta' is 1, whose logarithm yarn divides by; correct it", r.where()));
    rope.scaling = RopeScaling::yarn;
    rope.original_max_position = original();
    rope.factor = r.positive_number("factor", static_cast<double>(max_position) / rope.original_max_position);
    rope.beta_fast = r.positive_number("beta_fast", 32.0);
    rope.beta_slow = r.positive_number("beta_slow", 1.0);
    rope.truncate = r.boolean("truncate", true);
    rope.attention_factor = yarn_attention_factor(r, rope.factor);
    add({"factor", "beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim"});
    add({"attn_factor", "finetuned"});  // found in files, and ignored by transformers
  } else {
    fail_input(
        fmt::format("{}: RoPE scaling '{}' is not supported; supported are default, linear, llama3, yarn and longrope",
                    r.where(), type));
  }
  check_fields_of(r, known);
  return rope;
}

bool same(const RopeConfig& a, const RopeConfig& b) {
  const auto& [scaling, theta, factor, low, high, original, fast, slow, attention, truncate, rotary, short_factor,
               long_factor, pairs, growth, proportion] = a;
  return std::tie(scaling, theta, factor, low, high, original, fast, slow, attention, truncate, rotary, short_factor,
                  long_factor, pairs, growth, proportion) ==
         std::tie(b.scaling, b.theta, b.factor, b.low_freq_factor, b.high_freq_factor, b.original_max_position,
                  b.beta_fast, b.beta_slow, b.attention_factor, b.truncate, b.rotary_dim, b.short_factor, b.long_factor,
                  b.pairs, b.query_growth, b.proportion);
}

}  // namespace

RopeConfig parse_rope(const ConfigReader& model, int64_t max_position, double absent_theta) {
  static const json kNone = json::object();
  const auto reader = [&](const char* key) {
    return ConfigReader(model.has(key) ? model.at(key) : kNone, fmt::format("{}: {}", model.where(), key));
  };
  const ConfigReader scaling = reader("rope_scaling"), parameters = reader("rope_parameters");
  model.refuse_null("rope_theta");
  const double theta = model.positive_number("rope_theta", absent_theta);
  for (const ConfigReader* r : {&scaling, &parameters}) {
    if (model.has("rope_theta") && r->positive_number("rope_theta", theta) != theta)
      fail_input(
          fmt::format("{}: 'rope_theta' is {} and that of {} is {}; transformers versions disagree on which one to "
                      "use: remove the wrong one",
                      model.where(), model.at("rope_theta").dump(), r->where(), r->at("rope_theta").dump()));
  }
  if (parameters.object().empty()) return parse_object(scaling, model, theta, max_position);
  const RopeConfig rope = parse_object(parameters, model, theta, max_position);
  if (!scaling.object().empty() && !same(parse_object(scaling, model, theta, max_position), rope))
    fail_input(
        fmt::format("{}: 'rope_scaling' is {} and 'rope_parameters' is {}; transformers versions disagree on which one "
                    "to use: remove the wrong one",
                    model.where(), scaling.object().dump(), parameters.object().dump()));
  return rope;
}

RopeConfig parse_partial_rope(const ConfigReader& model, const ModelConfig& c, double absent_theta, double part,
                              const std::vector<std::string>& unused) {
  constexpr const char* kPart = "partial_rotary_factor";
  json object = model.object(), given;
  const auto take = [&](json& from) {
    ConfigReader(from, model.where()).refuse_null(kPart);
    if (from.contains(kPart) && !from.at(kPart).is_null()) {
      if (!given.is_null() && given != from.at(kPart))
        fail_input(fmt::format("{}: '{}' is both {} and {}; remove the wrong one", model.where(), kPart, given.dump(),
                               from.at(kPart).dump()));
      given = from.at(kPart);
    }
    from.erase(kPart);
  };
  take(object);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!object.contains(key) || !object.at(key).is_object()) continue;
    take(object.at(key));
    for (const std::string& name : unused) object.at(key).erase(name);
  }
  const json parts = given.is_null() ? json::object() : json{{kPart, given}};
  part = ConfigReader(parts, model.where()).positive_number(kPart, part);
  RopeConfig rope = parse_rope(ConfigReader(object, model.where()), c.max_position, absent_theta);
  const auto turning = static_cast<int64_t>(static_cast<double>(c.head_dim) * part);
  if (part > 1 || turning % 2 != 0 || turning == 0)
    fail_input(fmt::format("{}: '{}' is {}, so {} of a head's {} elements would be rotated; the number must be even",
                           model.where(), kPart, part, turning, c.head_dim));
  rope.rotary_dim = turning == c.head_dim ? 0 : turning;
  return rope;
}

RopeConfig parse_growing_rope(const ConfigReader& model, json parameters, const ModelConfig& c) {
  constexpr const char *kBeta = "llama_4_scaling_beta", *kOriginal = "original_max_position_embeddings";
  const ConfigReader r(parameters, model.where() + ": rope_parameters");
  for (const char* key : {kBeta, kOriginal}) {
    if (!r.has(key)) fail_input(fmt::format("{}: '{}' is missing; {} needs it", r.where(), key, c.architecture));
  }
  const double beta = r.number(kBeta, 0), original = r.positive_number(kOriginal, 1);
  if (beta < 0) fail_input(fmt::format("{}: '{}' is {}; it must be a number of at least 0", r.where(), kBeta, beta));
  for (const char* key : {kBeta, "max_position_embeddings"}) parameters.erase(key);  // the latter is not read
  json object = {{"rope_parameters", parameters}};
  for (const char* key : {"rope_theta", kOriginal}) {  // must be those of rope_parameters
    if (model.has(key)) object[key] = model.at(key);
  }
  RopeConfig rope = parse_rope(ConfigReader(object, model.where()), c.max_position);
  rope.query_growth = beta;
  rope.original_max_position = original;
  return rope;
}

void check_rope_is_finite(const RopeConfig& rope, int64_t head_dim, const std::string& where) {
  const auto is_finite = [](double value) { return std::isfinite(static_cast<float>(value)); };
  bool finite = is_finite(rope.attention_factor);
  for (const bool in_long : {false, true}) {
    if (in_long && rope.scaling != RopeScaling::longrope) continue;
    const std::vector<double> frequencies = rope_frequencies(rope, head_dim, in_long);
    finite = finite && std::all_of(frequencies.begin(), frequencies.end(), is_finite);
  }
  if (!finite)
    fail_input(
        fmt::format("{}: its RoPE has angles that are infinite or NaN (rope_theta {}, factor {}, attention_factor {}); "
                    "correct these fields",
                    where, rope.theta, rope.factor, rope.attention_factor));
}

}  // namespace megatrain
