// Lending idle memory to generation between steps changes no bit of training, and needs only what the plan reserves.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "megatrain/generate/generator.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/train/sampling.h"
#include "tests/pipeline/tiny.h"

namespace megatrain::tiny {

inline constexpr int64_t kLendingSteps = kSanitized ? 3 : 4;

inline std::vector<Shape> sampling_shapes() {
  const std::vector<std::string> prompts = {"one", "another", "a third"};
  return {{.prompts = prompts},
          {.tied = true, .clip = false, .prompts = {"one"}},
          {.layers = 5, .freezing = {.freeze = {"model.layers.0.*", "model.embed_tokens.*"}}, .prompts = prompts},
          {.layers = 5, .experts = 8, .experts_per_record = 3, .prompts = prompts}};
}

// The hash of a training without samples.
inline std::string unlent_hash(Shape shape, const std::string& device) {
  shape.prompts.clear();
  Tiny tiny(shape, device);
  return tiny.train(tiny.default_plan(), kLendingSteps);
}

// Trains under `plans` random plans and calls between(tiny, trainer, step) after every step; expects one hash.
template <class Between>
void expect_unlent_hash(const Shape& shape, const std::string& device, uint64_t plans, const Between& between) {
  const std::string expected = unlent_hash(shape, device);
  Tiny tiny(shape, device);
  for (uint64_t seed = 0; seed < plans; ++seed) {
    const auto trainer = tiny.trainer(random_plan(tiny.workload(), seed));
    std::string norms;
    for (int64_t step = 1; step <= kLendingSteps; ++step) {
      norms += fmt::format(" {:a}", tiny.step(*trainer, step).grad_norm);
      between(tiny, *trainer, step);
    }
    trainer->drain();
    ASSERT_EQ(hash_state(trainer->records(), kLendingSteps).state + norms, expected) << "plan " << seed;
  }
}

inline void expect_lent_memory_may_change(const Shape& shape, const std::string& device, uint64_t plans) {
  const auto fill = [](Tiny& tiny, std::span<std::byte> lent, uint8_t value) {
    const std::vector<std::byte> bytes(lent.size(), std::byte{value});
    tiny.machine().device->copy_now(lent.data(), bytes.data(), bytes.size());
  };
  expect_unlent_hash(shape, device, plans, [&](Tiny& tiny, Trainer& trainer, int64_t step) {
    const std::span<std::byte> lent = trainer.lend();
    EXPECT_GE(std::ssize(lent), tiny.workload().generation_bytes);
    fill(tiny, lent, step % 2 ? 0xFF : 0x42);
    if (step != 2) return;
    const Batch batch = make_batch(shape, 9);
    const double loss = trainer.evaluate(batch).loss;
    fill(tiny, lent, 0xFF);
    EXPECT_EQ(trainer.evaluate(batch).loss, loss);
  });
}

// As on a GPU: weights that do not live on the device are copied to it. None of its own memory is allocated.
inline void expect_answers_in_lent_memory(const Shape& shape, const std::string& device_name, uint64_t plans) {
  const ModelConfig model = model_config(shape);
  GeneratorOptions options = sample_options({.every = 1, .prompts = shape.prompts, .max_tokens = 8}, model, {}, 12);
  options.in_place = false;
  std::vector<GenerationRequest> requests;
  for (size_t i = 0; i < shape.prompts.size(); ++i)
    requests.push_back({.prompt = std::vector<int32_t>(12, static_cast<int32_t>(i + 1)), .max_tokens = 8});
  const auto answers = [&](Tiny& tiny, Trainer& trainer, const GeneratorOptions& with) {
    Generator generator(*tiny.machine().device, *tiny.machine().ops, model, trainer.records(), with);
    std::vector<int32_t> ids;
    for (const Generation& g : generator.generate(requests, {})) ids.insert(ids.end(), g.ids.begin(), g.ids.end());
    return ids;
  };
  std::vector<std::vector<int32_t>> expected;  // by step
  expect_unlent_hash(shape, device_name, plans, [&](Tiny& tiny, Trainer& trainer, int64_t step) {
    const Ledger& ledger = tiny.machine().device->ledger();
    options.lent = {};
    options.memory_bytes = int64_t{1} << 30;
    trainer.drain();
    if (std::ssize(expected) < step) expected.push_back(answers(tiny, trainer, options));
    options.lent = trainer.lend();
    options.memory_bytes = 0;
    const int64_t before = ledger.allocations();
    ASSERT_EQ(answers(tiny, trainer, options), expected[static_cast<size_t>(step - 1)]);
    ASSERT_EQ(ledger.allocations(), before) << ledger.table();
  });
}

}  // namespace megatrain::tiny
