// Every golden's model, so every family, trains to the same bits under every plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "tests/pipeline/tiny.h"
#include "tests/support/places.h"

namespace megatrain::tiny {

namespace {

constexpr uint64_t kPlansAModel = kSanitized ? 1 : 20;
constexpr int64_t kFamilySteps = 2;

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& folder : std::filesystem::directory_iterator(in_repository("tests/parity/goldens")))
    names.push_back(folder.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

class FamilyPlans : public ::testing::TestWithParam<std::string> {};

TEST_P(FamilyPlans, GiveOneStateHash) {
  Shape shape{.micro_batches = 3, .sequences = 6};
  shape.config_file = in_repository("tests/parity/goldens/" + GetParam() + "/model/config.json");
  const ModelConfig config = model_config(shape);
  shape.vocab = config.vocab;
  shape.experts_per_record = config.experts.count > 2 ? config.experts.count / 2 : 0;
  for (const int64_t layer : {int64_t{0}, config.layers - 1}) {
    if (config.delta_net.in_layer(layer) || config.mamba2.in_layer(layer)) shape.seq_len = 70;  // two chunks
  }
  Tiny tiny(shape);
  const std::string expected = tiny.train(tiny.default_plan(), kFamilySteps);
  for (uint64_t seed = 0; seed < kPlansAModel; ++seed) {
    const Plan plan = random_plan(tiny.workload(), seed);
    ASSERT_EQ(tiny.train(plan, kFamilySteps), expected)
        << "plan " << seed << ": " << plan_to_json(tiny.workload(), plan).dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, FamilyPlans, ::testing::ValuesIn(golden_models()),
                         [](const auto& info) { return info.param; });

}  // namespace megatrain::tiny
