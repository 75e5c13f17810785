// Memory that is idle between steps is lent to generation: it changes no bit of training, and takes what the plan says.
#include <gtest/gtest.h>

#include "megatrain/generate/generator.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/train/sampling.h"
#include "tests/pipeline/tiny.h"

namespace megatrain::tiny {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kPlans = 4;
#else
constexpr uint64_t kPlans = 10;
#endif
constexpr int64_t kSteps = 4;

const std::vector<std::string> kPrompts = {"one", "another", "a third"};

std::vector<Shape> sampling_shapes() {
  return {{.prompts = kPrompts},
          {.tied = true, .clip = false, .prompts = {"one"}},
          {.layers = 5, .freezing = {.freeze = {"model.layers.0.*", "model.embed_tokens.*"}}, .prompts = kPrompts},
          {.layers = 5, .experts = 8, .experts_per_record = 3, .prompts = kPrompts}};
}

Shape without_samples(Shape shape) {
  shape.prompts.clear();
  return shape;
}

// The plan that a training without samples would have is trained with.
std::string expected_of(const Shape& shape) {
  Tiny tiny(without_samples(shape));
  return tiny.train(tiny.default_plan(), kSteps);
}

std::string hash_of(Trainer& trainer, const std::string& norms) {
  trainer.drain();
  return hash_state(trainer.records(), kSteps).state + norms;
}

}  // namespace

TEST(Lending, WhateverIsWrittenThereBetweenStepsChangesNoBit) {
  for (const Shape& shape : sampling_shapes()) {
    const std::string expected = expected_of(shape);
    Tiny tiny(shape);
    for (uint64_t seed = 0; seed < kPlans; ++seed) {
      const auto trainer = tiny.trainer(random_plan(tiny.workload(), seed));
      std::string norms;
      for (int64_t step = 1; step <= kSteps; ++step) {
        norms += fmt::format(" {:a}", tiny.step(*trainer, step).grad_norm);
        const std::span<std::byte> lent = trainer->lend();
        std::fill(lent.begin(), lent.end(), std::byte{static_cast<uint8_t>(step % 2 ? 0xFF : 0x42)});
        if (step != 2) continue;
        const Batch batch = make_batch(shape, 9);
        const double loss = trainer->evaluate(batch).loss;
        std::fill(lent.begin(), lent.end(), std::byte{0xFF});
        EXPECT_EQ(trainer->evaluate(batch).loss, loss);
      }
      ASSERT_EQ(hash_of(*trainer, norms), expected) << "plan " << seed;
    }
  }
}

TEST(Lending, TheDeviceHoldsWhatThePlanSaidAndLendsWhatGenerationTakes) {
  for (const Shape& shape : sampling_shapes()) {
    Tiny tiny(shape);
    const Workload& w = tiny.workload();
    EXPECT_GT(w.generation_bytes, 0);
    for (uint64_t seed = 0; seed < kPlans; ++seed) {
      const Plan plan = random_plan(w, seed);
      const auto trainer = tiny.trainer(plan);
      const Ledger& ledger = tiny.machine().device->ledger();
      EXPECT_EQ(ledger.bytes(), memory_need(w, plan).hbm_bytes()) << ledger.table();
      EXPECT_GE(std::ssize(trainer->lend()), w.generation_bytes);
    }
  }
}

// As on a GPU: weights that do not live on the device come to it. None of its own memory is taken.
TEST(Lending, AnswersComeFromLentMemoryAloneAndChangeNoBit) {
  for (const Shape& shape : sampling_shapes()) {
    const std::string expected = expected_of(shape);
    Tiny tiny(shape);
    const ModelConfig model = model_config(shape);
    GeneratorOptions options = sample_options({.every = 1, .prompts = shape.prompts, .max_tokens = 8}, model, 12);
    options.in_place = false;
    std::vector<GenerationRequest> requests;
    for (size_t i = 0; i < shape.prompts.size(); ++i)
      requests.push_back({.prompt = std::vector<int32_t>(12, static_cast<int32_t>(i + 1)), .max_tokens = 8});
    std::vector<std::vector<int32_t>> answers;  // by step
    const auto ids = [](const std::vector<Generation>& generations) {
      std::vector<int32_t> all;
      for (const Generation& g : generations) all.insert(all.end(), g.ids.begin(), g.ids.end());
      return all;
    };
    for (uint64_t seed = 0; seed < kPlans; ++seed) {
      const auto trainer = tiny.trainer(random_plan(tiny.workload(), seed));
      Device& device = *tiny.machine().device;
      Ops& ops = *tiny.machine().ops;
      std::string norms;
      for (int64_t step = 1; step <= kSteps; ++step) {
        norms += fmt::format(" {:a}", tiny.step(*trainer, step).grad_norm);
        options.lent = trainer->lend();
        if (std::ssize(answers) < step) {
          Generator plain(
              device, ops, model, trainer->records(),
              {.max_context = options.max_context, .max_batch = options.max_batch, .memory_bytes = int64_t{1} << 30});
          answers.push_back(ids(plain.generate(requests, {})));
        }
        const int64_t before = device.ledger().allocations();
        Generator generator(device, ops, model, trainer->records(), options);
        ASSERT_EQ(ids(generator.generate(requests, {})), answers[static_cast<size_t>(step - 1)]) << "plan " << seed;
        ASSERT_EQ(device.ledger().allocations(), before) << device.ledger().table();
      }
      ASSERT_EQ(hash_of(*trainer, norms), expected) << "plan " << seed;
    }
  }
}

TEST(Lending, ATrainerWithoutSamplesLendsNothingAndIsPlannedWithoutThem) {
  Tiny tiny({});
  EXPECT_EQ(tiny.workload().generation_bytes, 0);
  const Plan plan = tiny.default_plan();
  EXPECT_EQ(memory_need(tiny.workload(), plan).bytes_of(ResourceKind::generation), 0);
  EXPECT_TRUE(tiny.trainer(plan)->lend().empty());
}

}  // namespace megatrain::tiny
