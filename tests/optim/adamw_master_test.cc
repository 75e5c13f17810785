// Proves that the fp32 master is exact: a recorded sequence of gradients compared with PyTorch's fp32 AdamW
// (tests/optim/make_adamw_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "megatrain/base/split_master.h"
#include "megatrain/io/json.h"
#include "megatrain/ops/adamw.h"
#include "megatrain/optim/scalars.h"
#include "tests/optim/adamw_recording.h"
#include "tests/support/places.h"

namespace megatrain {
namespace {

nlohmann::json golden() {
  return nlohmann::json::parse(std::ifstream(in_repository("tests/optim/goldens/adamw_fp32.json")));
}

std::vector<float> recorded_weights() {
  std::vector<float> weights;
  for (int i = 0; i < kRecordedWeights; ++i) weights.push_back(recorded_weight(i));
  return weights;
}

// Runs the recording; `after_step` may change the planes of the split master.
template <class AfterStep>
std::vector<float> run_recording(const std::vector<float>& start, const AfterStep& after_step) {
  std::vector<float> m(start.size()), v(start.size()), grad(start.size()), end;
  std::vector<bf16> weight;
  std::vector<uint16_t> low;
  for (const float w : start) {
    weight.push_back(master_high(w));
    low.push_back(master_low(w));
  }
  for (int step = 0; step < kRecordedSteps; ++step) {
    for (int i = 0; i < kRecordedWeights; ++i) grad[static_cast<size_t>(i)] = recorded_gradient(step, i);
    const AdamWScalars scalars =
        adamw_scalars({.lr = 1e-6, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .t = step + 1});
    EXPECT_TRUE(adamw_cpu({.scalars = scalars,
                           .count = kRecordedWeights,
                           .grad_f32 = grad.data(),
                           .m = m.data(),
                           .v = v.data(),
                           .weight = weight.data(),
                           .low = low.data()},
                          best_simd()));
    after_step(weight, low);
  }
  for (size_t i = 0; i < start.size(); ++i) end.push_back(join_master(weight[i], low[i]));
  return end;
}

TEST(AdamWMaster, TheRecordingIsTheOneTheGoldenWasMadeOf) {
  const nlohmann::json first = golden()["first_gradients"];
  for (int i = 0; i < 4; ++i) EXPECT_EQ(recorded_gradient(0, i), first[static_cast<size_t>(i)].get<float>());
}

TEST(AdamWMaster, AThousandStepsAtLr1eMinus6StayWithin1eMinus6OfPyTorchInFp32) {
  const std::vector<float> start = recorded_weights();
  const std::vector<float> ours = run_recording(start, [](auto&, auto&) {});
  const nlohmann::json expected = golden()["weights"];
  ASSERT_EQ(expected.size(), ours.size());
  double largest = 0, difference = 0;
  size_t moved = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto bits = static_cast<uint32_t>(std::strtoul(expected[i].get<std::string>().c_str(), nullptr, 16));
    const double torch = std::bit_cast<float>(bits);
    largest = std::max(largest, std::fabs(torch));
    difference = std::max(difference, std::fabs(ours[i] - torch));
    moved += ours[i] != start[i];
  }
  RecordProperty("relative_difference", std::to_string(difference / largest * 1e9) + "e-9");
  EXPECT_LE(difference / largest, 1e-6);
  EXPECT_GE(moved, ours.size() * 99 / 100);
}

TEST(AdamWMaster, ABf16MasterWouldLeaveMostWeightsUnmoved) {
  std::vector<float> start = recorded_weights();
  for (float& w : start) w = to_float(to_bf16(w));
  const std::vector<float> end = run_recording(start, [](std::vector<bf16>& weight, std::vector<uint16_t>& low) {
    for (size_t i = 0; i < weight.size(); ++i) {
      weight[i] = to_bf16(join_master(weight[i], low[i]));
      low[i] = 0;
    }
  });
  size_t unmoved = 0;
  for (size_t i = 0; i < end.size(); ++i) unmoved += end[i] == start[i];
  EXPECT_GE(unmoved, end.size() / 2);
}

}  // namespace
}  // namespace megatrain
