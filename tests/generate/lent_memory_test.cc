// Generating in lent memory: the size that a plan reserves is enough, and nothing else is allocated.
#include "megatrain/generate/lent_memory.h"

#include <algorithm>

#include "megatrain/base/error.h"
#include "tests/generate/tiny_models.h"

namespace megatrain::generation {
namespace {

constexpr std::byte kGuard{0x5A};

// This many bytes of memory, with a guard after them.
class Lender {
 public:
  explicit Lender(int64_t bytes) : bytes_(static_cast<size_t>(bytes)), memory_(bytes_ + 256 + kGuarded) {
    void* at = memory_.data();
    size_t left = bytes_ + 256;
    lent_ = {static_cast<std::byte*>(std::align(256, bytes_, at, left)), bytes_};
    std::fill(lent_.data() + bytes_, memory_.data() + memory_.size(), kGuard);
  }
  std::span<std::byte> lent() const { return lent_; }
  bool intact() const {
    return std::all_of(static_cast<const std::byte*>(lent_.data() + bytes_), memory_.data() + memory_.size(),
                       [](std::byte b) { return b == kGuard; });
  }

 private:
  static constexpr size_t kGuarded = 4096;
  size_t bytes_;
  std::vector<std::byte> memory_;
  std::span<std::byte> lent_;
};

int64_t most_needed(const TinyModel& model, const GeneratorOptions& options, int64_t experts_per_record = 0) {
  return CachedForward::most_needed(model.config, model.records.front().dtype(), experts_per_record, options,
                                    options.in_place)
      .bytes;
}

TEST(LentMemory, OfWhatIsNeededAtMostHoldsAllThatAGeneratorTakes) {
  for (const std::string& name : model_names()) {
    for (const int64_t batch : {1, 4}) {
      for (const bool in_place : {false, true}) {
        TinyModel model(name);
        GeneratorOptions options{.max_context = 100, .max_batch = batch, .in_place = in_place};
        const Lender lender(most_needed(model, options));
        options.lent = lender.lent();
        const int64_t before = model.device->ledger().allocations();
        Generator generator = model.generator(options);
        EXPECT_EQ(ids_of(generator.generate(golden_requests(name), {})), golden_ids(name)) << name;
        EXPECT_EQ(model.device->ledger().allocations(), before) << name << ", " << model.device->ledger().table();
        EXPECT_TRUE(lender.intact()) << name;
      }
    }
  }
}

TEST(LentMemory, OfExpertsInAnyGroupsHoldsAllThatAGeneratorTakes) {
  for (const int64_t each : {0, 1, 3}) {
    TinyModel model("qwen3_moe", {{"num_hidden_layers", 6}}, Tier::host, make_cpu_device(), each);
    GeneratorOptions options{.max_context = 100, .max_batch = 3, .memory_bytes = kPlenty};
    const auto wanted = ids_of(model.generator(options).generate(golden_requests("qwen3_moe"), {}));
    options.in_place = false;
    options.memory_bytes = 0;
    const Lender lender(most_needed(model, options, each));
    options.lent = lender.lent();
    const int64_t before = model.device->ledger().allocations();
    Generator generator = model.generator(options);
    EXPECT_EQ(generator.forward().weights().resident_ranges(), 0) << "the least has room for slots alone";
    EXPECT_EQ(ids_of(generator.generate(golden_requests("qwen3_moe"), {})), wanted) << each;
    EXPECT_EQ(model.device->ledger().allocations(), before) << model.device->ledger().table();
    EXPECT_TRUE(lender.intact());
  }
}

TEST(LentMemory, IsNotUsedWhereItIsTooSmall) {
  TinyModel model("llama_packed");
  GeneratorOptions options{.max_context = 100, .max_batch = 2, .memory_bytes = kPlenty, .in_place = false};
  const Lender lender(most_needed(model, options) - 256);
  options.lent = lender.lent();
  std::fill(options.lent.begin(), options.lent.end(), kGuard);
  EXPECT_EQ(ids_of(model.generator(options).generate(golden_requests("llama_packed"), {})), golden_ids("llama_packed"));
  EXPECT_TRUE(std::all_of(options.lent.begin(), options.lent.end(), [](std::byte b) { return b == kGuard; }));
  options.memory_bytes = 0;
  EXPECT_THROW(model.generator(options), Error);
}

// A plan is made before it is known where the weights will be.
TEST(GenerationNeed, IsWhatRecordsOnTheHostNeedAndNoLessThanThatOfOthers) {
  for (const std::string& name : model_names()) {
    for (const int64_t batch : {1, 3}) {
      const GeneratorOptions options{.max_context = 64, .max_batch = batch, .in_place = false};
      for (const Tier tier : {Tier::host, Tier::hbm}) {
        TinyModel model(name, DType::bf16, tier);
        const int64_t least =
            CachedForward::least_bytes(*model.device, *model.ops, model.config, model.records, options);
        const GenerationNeed need = CachedForward::most_needed(model.config, DType::bf16, 0, options, false);
        const int64_t most = need.bytes + model.ops->scratch_bytes(need.ops);
        EXPECT_GE(most, least) << name;
        EXPECT_EQ(most == least, tier == Tier::host) << name;
      }
    }
  }
}

TEST(GenerationNeed, GeneratorsAllocateNoMoreThanTheLeastWhenTheyMayTakeNoMore) {
  for (const std::string& name : model_names()) {
    for (const int64_t batch : {1, 4}) {
      for (const bool in_place : {false, true}) {
        TinyModel model(name, DType::bf16);
        GeneratorOptions options{.max_context = 100, .max_batch = batch, .in_place = in_place};
        options.memory_bytes =
            CachedForward::least_bytes(*model.device, *model.ops, model.config, model.records, options);
        const int64_t before = model.device->ledger().bytes();
        Generator generator = model.generator(options);
        generator.generate(golden_requests(name), {});
        EXPECT_LE(model.device->ledger().peak_bytes() - before, options.memory_bytes) << name;
      }
    }
  }
}

TEST(LentMemory, BeyondTheLeastKeepsWeightsAndTheDevicesOwnKeepsMore) {
  TinyModel model("llama_packed", {{"num_hidden_layers", 8}});
  GeneratorOptions options{.max_context = 100, .max_batch = 2, .in_place = false};
  const int64_t least = most_needed(model, options), block = LentMemory::piece_bytes(model.records[1].weight_bytes());
  options.memory_bytes = kPlenty;
  const auto wanted = ids_of(model.generator(options).generate(golden_requests("llama_packed"), {}));
  for (const int64_t in_lent : {0, 1, 3}) {
    for (const int64_t in_own : {0, 1, 2}) {
      const Lender lender(least + in_lent * block + block / 2);
      options.lent = lender.lent();
      options.memory_bytes = in_own * block + block / 2;
      const int64_t before = model.device->ledger().bytes();
      Generator generator = model.generator(options);
      EXPECT_EQ(generator.forward().weights().resident_ranges(), in_lent + in_own);
      EXPECT_LE(model.device->ledger().bytes() - before, options.memory_bytes);
      EXPECT_EQ(ids_of(generator.generate(golden_requests("llama_packed"), {})), wanted);
      EXPECT_TRUE(lender.intact());
    }
  }
}

}  // namespace
}  // namespace megatrain::generation
