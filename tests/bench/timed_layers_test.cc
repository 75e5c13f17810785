// The layers that `doctor` times, also for devices that are not present.
#include <gtest/gtest.h>

#include "megatrain/bench/measure.h"
#include "megatrain/ops/note_cost.h"

namespace megatrain {
namespace {

TEST(TimedLayers, OfEveryKindOfDeviceHaveProductsAndAttentionThatGrow) {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
    double before = 0;
    for (const TimedLayer& layer : dense_layers(kind)) {
      double flops = 0;
      bool attention = false;
      for (const auto& [note, times] : layer.calls) {
        flops += note_flops(note) * static_cast<double>(times);
        attention |= attention_length(note).has_value();
      }
      EXPECT_GT(flops, 2 * before);
      EXPECT_TRUE(attention);
      before = flops;
    }
  }
}

TEST(TimedLayers, OfExpertsHaveTheirProductsAloneInBothDirections) {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
    double before = 0;
    for (const TimedLayer& layer : expert_matmuls(kind)) {
      ASSERT_EQ(layer.calls.size(), 6u) << "gate and up, and down: forward, gradients of the input and of the weights";
      double largest = 0;
      for (const auto& [note, times] : layer.calls) {
        ASSERT_TRUE(expert_count(note));
        largest = std::max(largest, note_flops(note) / static_cast<double>(*expert_count(note)));
      }
      EXPECT_GT(largest, before) << "from few flops an expert to many";
      before = largest;
    }
  }
}

TEST(TimedLayers, OfLongSequencesHaveAttentionAloneInBothDirections) {
  EXPECT_TRUE(long_attention(DeviceKind::cpu).empty());
  const int64_t longest_whole = dense_layers(DeviceKind::cuda).back().seq_len;
  for (const TimedLayer& layer : long_attention(DeviceKind::cuda)) {
    EXPECT_EQ(layer.calls.size(), 2u);
    for (const auto& [note, times] : layer.calls) EXPECT_EQ(attention_length(note), layer.seq_len);
    EXPECT_GT(layer.seq_len, longest_whole);
  }
}

}  // namespace
}  // namespace megatrain
