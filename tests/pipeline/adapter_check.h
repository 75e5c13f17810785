// Adapters under random plans, on any device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "tests/pipeline/tiny.h"

namespace megatrain::tiny {

struct AdapterCase {
  const char* name;
  AdapterRules adapter;
  Shape shape = {};

  Shape adapted() const {
    Shape with = shape;
    with.freezing.adapter = adapter;
    return with;
  }
};

inline const std::vector<AdapterCase>& adapter_cases() {
  static const std::vector<AdapterCase> list = {
      {"all_linear", {.rank = 4, .alpha = 8}},
      {"dropout", {.rank = 4, .alpha = 8, .dropout = 0.2}, {.clip = false}},
      {"some_modules", {.rank = 3, .alpha = 6, .rslora = true, .targets = {"q_proj", "mlp.down_proj"}}, {.tied = true}},
      {"one_layer", {.rank = 2, .targets = {R"(model\.layers\.3\..*_proj)"}}, {.bf16_source = true}},
      {"patterns",
       {.rank = 4,
        .dropout = 0.1,
        .exclude = {"v_proj", "layers.2.mlp.up_proj"},
        .rank_pattern = {{R"(layers\.[01]\..*q_proj)", 8}, {"up_proj", 2}},
        .alpha_pattern = {{"o_proj", 3}}},
       {.micro_batches = 2, .bf16_source = true}},
      {"also_train", {.rank = 4, .also_train = {"embed_tokens", "norm", "layers.1.mlp.gate_proj"}}},
      {"also_train_an_mlp", {.rank = 4, .also_train = {"layers.2.mlp", "model.norm"}}, {.tied = true}},
      {"fp32", {.rank = 4, .alpha = 8, .init = AdapterInit::gaussian}, {.precision = "fp32"}},
      {"int8_moments", {.rank = 8, .alpha = 8}, {.moments = "int8"}},
      {"stochastic_master", {.rank = 8, .alpha = 8}, {.clip = false, .moments = "bf16", .master = "stochastic"}},
      {"base_in_files", {.rank = 4, .alpha = 8}, {.files = DType::bf16}},
      {"experts_in_files", {.rank = 4}, {.layers = 4, .experts = 6, .experts_per_record = 4, .files = DType::f16}},
      {"beside_experts", {.rank = 4, .alpha = 8}, {.layers = 4, .experts = 6}},
      {"beside_groups_of_experts", {.rank = 4, .dropout = 0.1}, {.layers = 4, .experts = 6, .experts_per_record = 4}},
      {"of_shared_experts", {.rank = 4, .alpha = 8}, {.layers = 4, .experts = 6, .shared_expert = true}},
      {"of_shared_experts_beside_groups",
       {.rank = 3, .dropout = 0.1, .dora = true},
       {.layers = 4, .experts = 6, .experts_per_record = 4, .shared_expert = true}},
      {"of_latent_attention", {.rank = 3, .alpha = 8}, {.layers = 4, .experts = 6, .latent = true}},
      {"of_latent_attention_beside_groups",
       {.rank = 3, .dropout = 0.1, .dora = true},
       {.layers = 3, .experts = 6, .experts_per_record = 4, .latent = true}},
      {"of_experts",
       {.rank = 4, .alpha = 8, .target_parameters = {"experts.gate_up_proj", "experts.down_proj"}},
       {.layers = 4, .experts = 6}},
      {"of_modules_of_experts",
       {.rank = 3, .alpha = 8, .targets = {"q_proj", "gate_proj", "down_proj"}, .rank_pattern = {{"down_proj", 2}}},
       {.layers = 4, .experts = 6, .experts_per_record = 2}},
      {"of_groups_of_experts",
       {.rank = 4, .targets = {}, .target_parameters = {"experts.gate_up_proj"}},
       {.layers = 4, .experts = 6, .experts_per_record = 4}},
      {"of_packed_experts",
       {.rank = 4,
        .alpha = 8,
        .target_parameters = {"experts.gate_up_proj", "experts.down_proj"},
        .also_train = {"mlp.gate"}},
       {.layers = 4, .experts = 6, .experts_per_record = 3, .mxfp4_experts = true, .mxfp4_source = true}},
      {"dora", {.rank = 4, .alpha = 8, .dora = true}},
      {"dora_dropout", {.rank = 4, .alpha = 8, .dropout = 0.2, .dora = true}, {.clip = false, .bf16_source = true}},
      {"dora_some_modules",
       {.rank = 3, .dora = true, .targets = {"q_proj", "v_proj", "up_proj"}, .also_train = {"layers.1.mlp.up_proj"}},
       {.tied = true, .precision = "fp32"}},
      {"dora_in_files", {.rank = 4, .dropout = 0.1, .dora = true}, {.files = DType::f16}},
      {"dora_beside_experts",
       {.rank = 4, .dora = true},
       {.layers = 4, .moments = "int8", .experts = 6, .experts_per_record = 4}},
      {"biases",
       {.rank = 4, .bias = AdapterBias::all, .targets = {"q_proj", "down_proj"}},
       {.biases = true, .files = DType::f16}},
      {"biases_of_adapted_modules",
       {.rank = 4, .dropout = 0.1, .dora = true, .bias = AdapterBias::of_adapted, .targets = {"v_proj", "o_proj"}},
       {.layers = 4, .biases = true, .experts = 6}},
      {"rows_of_tokens", {.rank = 4, .targets = {"q_proj"}, .token_indices = {{"embed_tokens", {7, 60, 3}}}}},
      {"rows_of_tied_tokens",
       {.rank = 4, .targets = {"v_proj"}, .token_indices = {{"embed_tokens", {5, 0, 33, 34, 59}}}},
       {.tied = true, .pad_id = 5, .bf16_source = true}},
      {"rows_of_tied_tokens_as_they_come",
       {.rank = 4, .targets = {"v_proj"}, .token_indices = {{"embed_tokens", {8, 9}}, {"lm_head", {8, 9}}}},
       {.tied = true, .clip = false, .moments = "int8"}},
      {"rows_of_both_tables",
       {.rank = 4, .dropout = 0.1, .token_indices = {{"embed_tokens", {7, 3}}, {"lm_head", {60, 3, 11}}}},
       {.clip = false, .files = DType::bf16}},
      {"rows_of_the_head",
       {.rank = 4, .targets = {"o_proj"}, .also_train = {"embed_tokens"}, .token_indices = {{"lm_head", {1}}}},
       {.precision = "fp32"}},
      {"beside_packed_experts",
       {.rank = 4, .alpha = 8},
       {.layers = 4, .experts = 6, .experts_per_record = 3, .mxfp4_experts = true, .mxfp4_source = true}},
      {"on_fp8",
       {.rank = 4, .alpha = 8, .dropout = 0.1},
       {.layers = 4, .fp8 = true, .fp8_source = true, .hidden = 136, .ff = 140}},
      {"of_experts_in_fp8",
       {.rank = 4,
        .alpha = 8,
        .target_parameters = {"experts.gate_up_proj", "experts.down_proj"},
        .also_train = {"layers.2.self_attn.q_proj"}},
       {.layers = 4, .experts = 6, .experts_per_record = 3, .fp8 = true, .fp8_source = true}}};
  return list;
}

// Those that a sanitizer sees, which is slow: every kind of record and every way of its bytes once. The names are of
// what other cases do not have.
inline std::vector<AdapterCase> sanitized_adapter_cases() {
  const std::set<std::string> names = {
      "dropout",                            // without clipping, so each record is updated when its gradient arrives
      "one_layer",                          // layers without a backward; a frozen base without low bits
      "patterns",                           // two micro-batches
      "also_train_an_mlp",                  // a frozen record with trained tensors; tied
      "stochastic_master",                  // random rounding, bf16 moments
      "experts_in_files",                   // the base in files, in another type; groups of experts
      "of_latent_attention_beside_groups",  // buffers, DoRA
      "of_modules_of_experts",              // adapters of experts by modules, in groups
      "of_packed_experts",                  // adapters of experts by parameters, MXFP4
      "dora_in_files",                      // magnitudes from a base in files
      "rows_of_tied_tokens",                // rows of one table in two places
      "rows_of_both_tables",                // rows of two tables
      "of_experts_in_fp8"};                 // packed layers beside one that is not
  std::vector<AdapterCase> cases;
  std::ranges::copy_if(adapter_cases(), std::back_inserter(cases),
                       [&](const AdapterCase& c) { return names.contains(c.name); });
  ensure(cases.size() == names.size(), "every name is a case");
  return cases;
}

// Under the random plans of seeds [first, first + plans).
inline void expect_one_hash_with_adapters(const AdapterCase& c, const std::string& device, uint64_t plans,
                                          int64_t steps, uint64_t first = 0) {
  Tiny tiny(c.adapted(), device);
  const std::string expected = tiny.train(tiny.default_plan(), steps);
  for (uint64_t seed = first; seed < first + plans; ++seed) {
    const Plan plan = random_plan(tiny.workload(), seed);
    ASSERT_EQ(tiny.train(plan, steps), expected)
        << c.name << ", plan " << seed << ": " << plan_to_json(tiny.workload(), plan).dump();
  }
}

}  // namespace megatrain::tiny
