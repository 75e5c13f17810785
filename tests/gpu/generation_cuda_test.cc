// Generation on the GPU: as transformers does it, whatever stays on the device.
#include <gtest/gtest.h>

#include "tests/generate/tiny_models.h"
#include "tests/gpu/cuda_fixture.h"

namespace megatrain::generation {
namespace {

constexpr GeneratorOptions kRoomy{.max_context = 100, .max_batch = 4, .memory_bytes = kPlenty};

TEST(CudaGeneration, GreedyIdsAreThoseOfTransformersForEveryFamily) {
  for (const std::string& name : model_names()) {
    TinyModel model(name, DType::f32, Tier::host, testing::require_cuda_device());
    Generator generator = model.generator(kRoomy);
    EXPECT_EQ(ids_of(generator.generate(golden_requests(name), {})), golden_ids(name)) << name;
  }
}

TEST(CudaGeneration, StreamedAndResidentAndDeviceWeightsGiveTheSameIds) {
  for (const std::string& name : model_names()) {
    TinyModel model(name, DType::bf16, Tier::host, testing::require_cuda_device());
    GeneratorOptions options = kRoomy;
    Generator resident = model.generator(options);
    const auto ids = ids_of(resident.generate(golden_requests(name), {}));
    options.memory_bytes = CachedForward::least_bytes(*model.device, *model.ops, model.config, model.records, options);
    Generator streaming = model.generator(options);
    EXPECT_EQ(ids_of(streaming.generate(golden_requests(name), {})), ids) << name;
    EXPECT_GT(streaming.forward().weights().copied_bytes(), 0) << name;
    TinyModel there(name, DType::bf16, Tier::hbm, testing::require_cuda_device());
    EXPECT_EQ(ids_of(there.generator(kRoomy).generate(golden_requests(name), {})), ids) << name;
  }
}

}  // namespace
}  // namespace megatrain::generation
