// Records that hold weights alone.
#include "megatrain/store/record.h"

#include <gtest/gtest.h>

#include "megatrain/base/split_master.h"

namespace megatrain {
namespace {

const std::vector<float> kValues = {1.0f, 1.00390625f, -3.14159265f, 1e-20f, 0.0f};  // the second lies between two bf16

TEST(Record, WeightsAloneAreWhatTrainingWouldStreamAndReadBackRounded) {
  const auto device = make_cpu_device();
  const LayerLayout layout = make_layout({{.name = "w", .rows = 1, .cols = 5}});
  for (const Tier tier : {Tier::host, Tier::hbm}) {
    LayerRecord full(*device, layout, tier), weights(*device, weights_only({layout}).front(), tier);
    std::vector<float> from_full(5), from_weights(5);
    full.write_master(0, 5, kValues.data());
    weights.write_master(0, 5, kValues.data());
    full.read_master(0, 5, from_full.data());
    weights.read_master(0, 5, from_weights.data());
    EXPECT_EQ(from_full, kValues);
    for (size_t i = 0; i < kValues.size(); ++i) {
      EXPECT_EQ(from_weights[i], to_float(master_high(kValues[i])));
      EXPECT_EQ(weights.planes().weight[i].bits, full.planes().weight[i].bits);
    }
  }
}

TEST(Record, WeightsAloneTakeNoOtherMemory) {
  const auto device = make_cpu_device();
  const auto layout = [](DType dtype) {
    return weights_only({make_layout({{.name = "w", .rows = 16, .cols = 128, .dtype = dtype}})}).front();
  };
  const LayerRecord half(*device, layout(DType::bf16), Tier::host);
  EXPECT_EQ(device->host_ledger().bytes(), 16 * 128 * 2);
  const LayerRecord single(*device, layout(DType::f32), Tier::host);
  EXPECT_EQ(device->host_ledger().bytes(), 16 * 128 * 6);
}

}  // namespace
}  // namespace megatrain
