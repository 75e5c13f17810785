// Generation on the GPU equals transformers', whatever stays on the device.
#include <gtest/gtest.h>

#include "tests/generate/tiny_models.h"
#include "tests/gpu/cuda_fixture.h"

namespace megatrain::generation {
namespace {

const GeneratorOptions kRoomy{.max_context = 100, .max_batch = 4, .memory_bytes = kPlenty};

TEST(CudaGeneration, GreedyIdsAreThoseOfTransformersForEveryFamily) {
  for (const std::string& name : model_names()) {
    TinyModel model(name, DType::f32, Tier::host, testing::require_cuda_device());
    Generator generator = model.generator(kRoomy);
    EXPECT_EQ(ids_of(generator.generate(golden_requests(name), {})), golden_ids(name)) << name;
  }
}

// The same ids with the fewest slots, with all weights copied to the device, and with records that live there.
void expect_the_same_ids_wherever_weights_are(const std::string& name, TinyModel& model, TinyModel& there) {
  GeneratorOptions options = kRoomy;
  Generator resident = model.generator(options);
  const auto ids = ids_of(resident.generate(golden_requests(name), {}));
  options.memory_bytes = CachedForward::least_bytes(*model.device, *model.ops, model.config, model.records, options);
  Generator streaming = model.generator(options);
  EXPECT_EQ(ids_of(streaming.generate(golden_requests(name), {})), ids) << name;
  EXPECT_GT(streaming.forward().weights().copied_bytes(), 0) << name;
  EXPECT_EQ(ids_of(there.generator(kRoomy).generate(golden_requests(name), {})), ids) << name;
}

TEST(CudaGeneration, StreamedAndResidentAndDeviceWeightsGiveTheSameIds) {
  for (const std::string& name : model_names()) {
    TinyModel model(name, DType::bf16, Tier::host, testing::require_cuda_device());
    if (!model.streams()) continue;
    TinyModel there(name, DType::bf16, Tier::hbm, testing::require_cuda_device());
    expect_the_same_ids_wherever_weights_are(name, model, there);
  }
}

TEST(CudaGeneration, LayersOfExpertsThatStreamGiveTheSameIdsAsResidentOnes) {
  for (const auto& [name, experts] : {std::pair("qwen3_moe", "num_experts"), {"mixtral", "num_local_experts"}}) {
    const nlohmann::json deep = {{"num_hidden_layers", 6}, {experts, 16}};
    for (const DType dtype : {DType::f32, DType::bf16}) {
      TinyModel model(name, deep, Tier::host, testing::require_cuda_device(), 0, dtype);
      TinyModel there(name, deep, Tier::hbm, testing::require_cuda_device(), 0, dtype);
      expect_the_same_ids_wherever_weights_are(name, model, there);
    }
  }
}

}  // namespace
}  // namespace megatrain::generation
