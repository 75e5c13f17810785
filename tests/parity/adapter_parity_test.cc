// Adapters against PEFT: losses, gradients and ten clipped steps; directories in and out.
#include <fmt/format.h>

#include "megatrain/config/adapter_file.h"
#include "megatrain/generate/cached_forward.h"
#include "megatrain/io/file.h"
#include "megatrain/model/multimodal.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/model/token_rows.h"
#include "megatrain/run/merge_adapter.h"
#include "megatrain/train/adapter_files.h"
#include "tests/parity/parity.h"
#include "tests/support/fixtures.h"
#include "tests/support/said.h"

namespace megatrain::parity {

class AdapterGolden : public ::testing::TestWithParam<std::string> {
 protected:
  std::string name() const { return kAdapterGoldens + GetParam(); }
  std::string adapter() const { return golden_path(name()) + "/adapter"; }
  TrainConfig config() const {
    const nlohmann::json golden = read_json_file(golden_path(name()) + "/expected.json");
    TrainConfig config;
    config.device = "cpu";
    config.precision = "fp32";
    config.threads = 2;
    config.model.path = golden_path(name()) + "/" + golden.at("base").get<std::string>();
    config.model.adapter = adapter();
    config.adapter = read_adapter_file(adapter()).settings;
    config.seq_len = 16;
    config.memory.gpu_bytes = config.memory.host_bytes = int64_t{4} << 30;
    return config;
  }
};

TEST_P(AdapterGolden, Fp32LossGradientsAndTenClippedStepsMatchPeft) { expect_fp32_parity(name(), {.micro_batch = 2}); }

TEST_P(AdapterGolden, Fp32MatchesWithTheWholeStepInOneMicroBatchAndBlocksInChunks) {
  const int64_t batch = read_json_file(golden_path(name()) + "/expected.json").at("batch").get<int64_t>();
  expect_fp32_parity(name(), {.micro_batch = batch, .mlp_chunk = 24});
}

TEST_P(AdapterGolden, Bf16LossAndGradientDirectionsMatchPeft) { expect_bf16_parity(name(), {.micro_batch = 2}); }

// What PEFT wrote of its settings names the same modules with the same ranks and scales.
TEST_P(AdapterGolden, SettingsReadFromPeftAreThoseOfTheRun) {
  const nlohmann::json golden = read_json_file(golden_path(name()) + "/expected.json");
  TrainConfig given = config(), ours = given;
  ours.adapter = adapter_of(golden);
  const ModelSource source = read_model_source(given);
  const auto adapters_of = [&](const TrainConfig& c) {
    std::map<std::string, std::tuple<int64_t, int64_t, float>> found;
    for (const LayerLayout& layout :
         model_layouts(source.config, DType::f32, {.adapter = adapter_rules(c.adapter, true)})) {
      for (const TensorSpec& t : layout.tensors) {
        if (t.trainable) found[t.name] = {t.rows, t.cols, t.adapter.scale};
      }
    }
    return found;
  };
  EXPECT_EQ(adapters_of(given), adapters_of(ours));
}

// The halves of experts' adapters in today's layout, of those of a file in which they are exchanged: the values of an
// outer axis of experts, one of ranks and one of inputs or outputs, with the axes in reverse.
Tensors in_layout_of_today(const Tensors& file, size_t experts, size_t rank) {
  Tensors today;
  for (const auto& [name, values] : file) {
    const size_t half = name.rfind(".lora_");
    if (name.find(".experts.") == std::string::npos) {
      today[name] = values;
      continue;
    }
    const bool first = name[half + 6] == 'A';
    std::string other = name;
    other[half + 6] = first ? 'B' : 'A';
    const size_t width = values.size() / experts / rank, outer = first ? experts : width,
                 inner = first ? width : experts;
    std::vector<float>& to = today[other];
    for (size_t i = 0; i < inner; ++i) {
      for (size_t r = 0; r < rank; ++r) {
        for (size_t o = 0; o < outer; ++o) to.push_back(values[(o * rank + r) * inner + i]);
      }
    }
  }
  return today;
}

// An adapter that is not trained comes out with the values that went in, under PEFT's names and in the layout of today.
TEST_P(AdapterGolden, AnUntrainedAdapterComesOutAsItWentIn) {
  Session session(config());
  session.trainer();
  const TensorTypes types = session.fill_weights();
  TemporaryDirectory out;
  const std::string directory = out / "adapter";
  const StateHash hash = session.export_model(directory, types);
  EXPECT_EQ(hash_directory(directory).weights, hash.weights);
  const AdapterFile before = read_adapter_file(adapter()), after = read_adapter_file(directory);
  Tensors given = read_tensors(adapter() + "/adapter_model.safetensors");
  const nlohmann::json golden = read_json_file(golden_path(name()) + "/expected.json");
  if (golden.value("exchanged_halves", false)) {
    const int64_t experts = read_model_source(config()).config.experts.count;
    given = in_layout_of_today(given, static_cast<size_t>(experts), static_cast<size_t>(before.settings.rank));
  }
  EXPECT_EQ(read_tensors(directory + "/adapter_model.safetensors"), given);
  EXPECT_EQ(after.settings.rank, before.settings.rank);
  EXPECT_EQ(after.settings.alpha, before.settings.alpha);
  EXPECT_EQ(after.settings.rank_pattern, before.settings.rank_pattern);
  EXPECT_EQ(after.settings.also_train, before.settings.also_train);
  EXPECT_EQ(after.settings.trainable_token_indices, before.settings.trainable_token_indices);
  EXPECT_TRUE(std::filesystem::exists(after.base + "/config.json")) << after.base;
}

// The records of these layouts, with the base's weights or the adapter's values where they have some.
std::vector<LayerRecord> filled_records(Device& device, const std::vector<LayerLayout>& layouts, const TrainConfig& c,
                                        const AdapterRules& rules, bool base, bool adapter) {
  std::vector<LayerRecord> records = make_records(device, layouts, std::vector<Tier>(layouts.size(), Tier::host));
  if (base) load_weights(c.model.path, records, 2);
  if (adapter) load_adapter(c.model.adapter, rules, records, 2);
  return records;
}

// Answers compute the adapters beside the weights: the logits of two sequences, token by token. So they do with
// adapters that a pass chooses, whose values are not among the base's records.
TEST_P(AdapterGolden, GenerationHasTheLogitsOfPeft) {
  const TrainConfig c = config();
  const nlohmann::json golden = read_json_file(golden_path(name()) + "/expected.json");
  const ModelConfig model = read_model_source(c).config;
  const AdapterRules rules = adapter_rules(c.adapter, true);
  const auto device = make_cpu_device();
  const auto ops = make_cpu_ops({.threads = 2});
  const std::vector<LayerLayout> layouts = weights_only(model_layouts(model, DType::f32, {.adapter = rules}));
  const std::vector<LayerRecord> records = filled_records(*device, layouts, c, rules, true, true);
  const int64_t length = golden.at("seq_len").get<int64_t>();
  const std::vector<float> expected = read_tensors(golden_path(name()) + "/logits.safetensors").at("logits");
  const std::string tokens = read_bytes(golden_path(name()) + "/" + golden.at("data").at("tokens").get<std::string>());
  const size_t width = golden.at("data").at("dtype") == "uint32" ? 4 : 2;
  const GeneratorOptions options{.max_context = length, .memory_bytes = int64_t{1} << 30};
  GeneratorOptions adapted = options;
  adapted.adapter = rules;
  CachedForward forward(*device, *ops, model, records, adapted);

  // an adapter that can be chosen has no modules trained whole, no biases and no adapters of experts
  const bool can_be_chosen =
      rules.also_train.empty() && rules.bias == AdapterBias::none && std::ranges::none_of(layouts, adapts_experts);
  std::vector<LayerLayout> of_base = layouts, of_choice = layouts;
  std::erase_if(of_base, [](const LayerLayout& layout) { return layout.is_adapter(); });
  std::erase_if(of_choice, [](const LayerLayout& layout) { return !layout.is_adapter(); });
  const std::vector<LayerRecord> base = filled_records(*device, of_base, c, rules, true, false);
  const std::vector<LayerRecord> choice = filled_records(*device, of_choice, c, rules, false, can_be_chosen);
  GeneratorOptions choosing = options;
  if (can_be_chosen) choosing.choices = {{.rules = rules, .records = &choice}};
  CachedForward choosable(*device, *ops, model, base, choosing), plain(*device, *ops, model, base, options);

  double worst = 0;
  for (int64_t at = 0; at < 2 * length; ++at) {
    int32_t id = 0;
    std::memcpy(&id, tokens.data() + static_cast<size_t>(at) * width, width);
    const std::vector<CachedForward::Feed> feed = {
        {.sequence = 0, .position = at % length, .ids = std::span(&id, 1), .logits = true, .length = length}};
    const std::span<const float> logits = forward.run(feed);
    for (int64_t v = 0; v < model.vocab; ++v) {
      const float e = expected[static_cast<size_t>(at * model.vocab + v)];
      worst = std::max(worst, std::fabs(static_cast<double>(logits[static_cast<size_t>(v)]) - e));
    }
    if (can_be_chosen && at < length) {
      ASSERT_TRUE(std::ranges::equal(choosable.run(feed, 1), logits)) << at;
    }
  }
  EXPECT_LE(worst, 1e-5 * largest(expected));
  const int32_t id = rules.token_indices.empty() ? 1 : static_cast<int32_t>(rules.token_indices.front().second.front());
  const std::vector<CachedForward::Feed> first = {
      {.sequence = 0, .position = 0, .ids = std::span(&id, 1), .logits = true, .length = length}};
  EXPECT_TRUE(std::ranges::equal(choosable.run(first, 0), plain.run(first))) << "without the adapter";
}

TEST_P(AdapterGolden, MergedWeightsAreThoseOfPeftAndTheOthersTheBases) {
  const TrainConfig c = config();
  TemporaryDirectory out;
  const MergedModel merged = merge_adapter(c.model.path, adapter(), out / "model", DType::f32, 2);
  EXPECT_GT(merged.adapted, merged.still);
  const Tensors found = read_tensors(out / "model"), base = read_tensors(c.model.path),
                expected = read_tensors(golden_path(name()) + "/merged.safetensors");
  ASSERT_FALSE(expected.empty());
  for (const auto& [tensor, error] : relative_errors(found, expected)) EXPECT_LE(error, 1e-6) << tensor;
  const std::vector<LayerLayout> layouts =
      model_layouts(read_model_source(c).config, DType::f32, {.adapter = adapter_rules(c.adapter, true)});
  AdapterIndex adapters;
  for (const LayerLayout& layout : layouts) adapters.add(layout);
  const TextNames names = open_model_files(c.model.path).text_names();
  std::set<std::string> adapted, may_change;  // tensors of files
  for (const LayerLayout& layout : layouts) {
    for (const TensorSpec& tensor : layout.tensors) {
      if (adapters.of(tensor).a) adapted.insert(names.in_files(file_name(tensor)));
      if (adapters.of(tensor).a || tensor.trainable) may_change.insert(names.in_files(file_name(tensor)));
      if (tensor.role == TensorRole::token_rows) may_change.insert(table_of(tensor));
    }
  }
  for (const auto& [tensor, values] : found) {
    if (!base.contains(tensor)) continue;  // as the base's, but not in MXFP4 or fp8
    if (adapted.contains(tensor)) {
      EXPECT_NE(values, base.at(tensor)) << tensor;
    } else if (!may_change.contains(tensor)) {
      EXPECT_EQ(values, base.at(tensor)) << tensor;
    }
  }
}

// The values that an adapter's directory has on this model if it says that this version of PEFT made it; empty: none.
AdapterValues read_as(const std::string& version, const std::string& adapter, const std::string& model) {
  TemporaryDirectory copy;
  const std::string directory = copy / "adapter";
  std::filesystem::copy(adapter, directory);
  nlohmann::json fields = read_json_file(directory + "/adapter_config.json");
  fields.erase("peft_version");
  if (!version.empty()) fields["peft_version"] = version;
  write_text_file(directory + "/adapter_config.json", fields.dump());
  const AdapterRules rules = adapter_rules(read_adapter_file(directory).settings, true);
  TrainConfig config;
  config.model.path = golden_path(model) + "/model";
  return read_adapter(directory, rules,
                      model_layouts(read_model_source(config).config, DType::f32, {.adapter = rules}));
}

// If a parameter has as many outputs as inputs, the halves have the same shapes in both layouts.
TEST(LayoutByVersion, HalvesOfExpertsAreExchangedUpTo0190) {
  const auto of = [](const std::string& version) {
    return read_as(version, golden_path(kAdapterGoldens + std::string("glm4_moe_experts_peft_0_18")) + "/adapter",
                   "glm4_moe_whole");
  };
  const AdapterValues old = of("0.18.1"), today = of("0.21.2");
  EXPECT_NE(old, today);
  for (const char* version : {"0.17.0", "0.18.0", "0.19.0", "0.19.0.dev0"}) EXPECT_EQ(of(version), old) << version;
  for (const char* version : {"0.19.1", "0.20.0", "0.21.3.dev0", "1.0.0"}) EXPECT_EQ(of(version), today) << version;
  AdapterValues unnamed;
  const std::string said = logged_by([&] { unnamed = of(""); });
  EXPECT_EQ(unnamed, today);
  EXPECT_NE(said.find("fits in two ways"), std::string::npos) << said;
}

TEST(LayoutByVersion, HalvesOfTransposedParametersAreExchangedIn0190Alone) {
  constexpr int kExperts = 4, kRank = 2, kWidth = 32;
  TemporaryDirectory made;
  std::string numbers;
  nlohmann::ordered_json header;
  for (const char* layer : {"0", "1"}) {
    for (const char* half : {"A", "B"}) {
      const size_t begin = numbers.size();
      for (int i = 0; i < kExperts * kRank * kWidth; ++i) {
        const float value = static_cast<float>(begin) + static_cast<float>(i);
        numbers.append(reinterpret_cast<const char*>(&value), sizeof value);
      }
      const std::vector<int> shape =
          *half == 'A' ? std::vector{kExperts * kRank, kWidth} : std::vector{kWidth, kExperts * kRank};
      header[fmt::format("base_model.model.model.layers.{}.mlp.experts.lora_{}.weight", layer, half)] = {
          {"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, numbers.size()}}};
    }
  }
  write_bytes(made / "adapter_model.safetensors", safetensors_bytes(header.dump(), numbers));
  write_text_file(made / "adapter_config.json",
                  R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": null,
                      "target_parameters": ["mlp.experts.down_proj"]})");
  const auto of = [&](const std::string& version) { return read_as(version, made.path(), "gpt_oss_mxfp4"); };
  const AdapterValues old = of("0.19.0"), today = of("0.21.2");
  EXPECT_NE(old, today);
  for (const char* version : {"0.18.1", "0.19.1", "0.20.0"}) EXPECT_EQ(of(version), today) << version;
}

INSTANTIATE_TEST_SUITE_P(Adapters, AdapterGolden, ::testing::ValuesIn(adapter_golden_names()),
                         [](const auto& info) { return info.param; });

}  // namespace megatrain::parity
