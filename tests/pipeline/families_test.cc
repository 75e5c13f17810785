// Every golden's model, so every family, trains to the same bits under every plan. Under a sanitizer, which is slow,
// one model of each structure: the pipeline moves the others in the same way.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "tests/pipeline/tiny.h"
#include "tests/support/places.h"

namespace megatrain::tiny {

namespace {

constexpr uint64_t kPlansAModel = kSanitized ? 1 : 20, kCutPlansAModel = kSanitized ? 0 : 3;
constexpr int64_t kFamilySteps = 2;

Shape shape_of(const std::string& golden) {
  Shape shape{.micro_batches = 3, .sequences = kSanitized ? 3 : 6};
  shape.config_file = in_repository("tests/parity/goldens/" + golden + "/model/config.json");
  const ModelConfig config = model_config(shape);
  shape.vocab = config.vocab;
  shape.experts_per_record = config.experts.count > 2 ? config.experts.count / 2 : 0;
  for (const int64_t layer : {int64_t{0}, config.layers - 1}) {
    if (config.delta_net.in_layer(layer) || config.mamba2.in_layer(layer)) shape.seq_len = 70;  // two chunks
  }
  return shape;
}

// What the pipeline sees of a model: the records of each kind of layer, and what its phases need and keep.
std::string structure_of(const std::string& golden) {
  const Shape shape = shape_of(golden);
  const ModelConfig config = model_config(shape);
  const Model model = make_model(config, {.tokens = 2 * shape.seq_len,
                                          .mlp_chunk = 2 * shape.seq_len,
                                          .head_chunk = 2 * shape.seq_len,
                                          .positions = shape.seq_len,
                                          .experts_per_record = shape.experts_per_record});
  std::set<std::string> layers;
  for (const Layer& layer : model.layers) {
    std::string text;
    for (const LayerLayout& record : layer.records)
      text += fmt::format("{}{} ", dtype_name(record.dtype()), record.is_buffers() ? " of buffers" : "");
    for (const auto& phase : layer.phases) {
      text += fmt::format("| {} parts, {} between, shares {}, reads {}, looks up {}, keeps", phase->parts().size(),
                          phase->between_parts_bytes() > 0, phase->shared_width() > 0,
                          phase->reads_shared().has_value(), phase->looks_up().has_value());
      for (const KeepLevel& level : phase->keep_levels()) text += fmt::format(" {}", level.name);
    }
    layers.insert(text);
  }
  return fmt::format("{}{}", config.tied ? "tied; " : "", fmt::join(layers, "; "));
}

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& folder : std::filesystem::directory_iterator(in_repository("tests/parity/goldens")))
    names.push_back(folder.path().filename().string());
  std::sort(names.begin(), names.end());
  std::set<std::string> seen;
  if (kSanitized)
    std::erase_if(names, [&](const std::string& name) { return !seen.insert(structure_of(name)).second; });
  return names;
}

}  // namespace

class FamilyPlans : public ::testing::TestWithParam<std::string> {};

TEST_P(FamilyPlans, GiveOneStateHash) {
  Tiny tiny(shape_of(GetParam()));
  const std::string expected = tiny.train(tiny.default_plan(), kFamilySteps);
  for (uint64_t seed = 0; seed < kPlansAModel; ++seed) {
    const Plan plan = random_plan(tiny.workload(), seed);
    ASSERT_EQ(tiny.train(plan, kFamilySteps), expected)
        << "plan " << seed << ": " << plan_to_json(tiny.workload(), plan).dump();
  }
}

// Micro-batches end where their samples end, and not two of them have the same number of tokens.
TEST_P(FamilyPlans, GiveTheHashOfMicroBatchesThatAreFilledWithPadding) {
  Shape shape = shape_of(GetParam());
  shape.partly_filled = true;
  Tiny padded(shape);
  const std::string expected = padded.train(padded.default_plan(), kFamilySteps);
  shape.cut = true;
  Tiny cut(shape);
  ASSERT_EQ(cut.train(cut.default_plan(), kFamilySteps), expected);
  for (uint64_t seed = 0; seed < kCutPlansAModel; ++seed) {
    const Plan plan = random_plan(cut.workload(), seed);
    ASSERT_EQ(cut.train(plan, kFamilySteps), expected)
        << "plan " << seed << ": " << plan_to_json(cut.workload(), plan).dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, FamilyPlans, ::testing::ValuesIn(golden_models()),
                         [](const auto& info) { return info.param; });

}  // namespace megatrain::tiny
