// Moments, gradients and weights on disk: the same bits with every queue, and I/O failures that end a run with a clear
// message.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <numeric>

#include "megatrain/generate/generator.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/schedule.h"
#include "tests/pipeline/tiny.h"
#include "tests/support/fixtures.h"
#include "tests/support/flip_scratch.h"

namespace megatrain::tiny {
namespace {

constexpr uint64_t kDiskPlans = kSanitized ? 2 : 20;
constexpr int64_t kDiskSteps = kSanitized ? 3 : 4;

// A random plan with all moments on disk that may be there, through 2 slabs or more, and with clipping most gradients
// too.
Plan disk_plan(const Workload& w, uint64_t seed) {
  Plan plan = random_plan(w, seed);
  for (int64_t record = 1; record < w.record_count(); ++record) {
    if (w.is_trained(record) && !plan.updated_on_device(record)) plan.record(record).moments = Tier::disk;
  }
  plan.rings.moment_slabs = std::min<int64_t>(plan.with_moments_on_disk(), 2 + static_cast<int64_t>(seed % 3));
  for (int64_t record = 1; w.clip && record < w.head_record(); ++record) {
    const bool may =
        w.is_trained(record) && !plan.updated_on_device(record) && (record + static_cast<int64_t>(seed)) % 4;
    plan.record(record).gradient = may ? Tier::disk : Tier::host;
  }
  if (w.clip)
    plan.rings.gradient_slabs = std::min<int64_t>(plan.waiting_elsewhere(), 2 + static_cast<int64_t>(seed % 2));
  if (w.clip) plan.rings.host_gradients = plan.waiting_on_host(w);
  check_plan(w, plan);
  return plan;
}

// The same, also with the weights of all blocks that may be on disk if `whole`, otherwise of none.
Plan whole_plan(const Workload& w, uint64_t seed, bool whole) {
  Plan plan = disk_plan(w, seed);
  for (int64_t record = 1; record < w.head_record(); ++record) {
    if (!plan.updated_on_device(record)) plan.record(record).state = whole ? Tier::disk : Tier::host;
  }
  plan.rings.weight_slabs = std::min<int64_t>(plan.with_weights_on_disk(), 1 + static_cast<int64_t>(seed % 3));
  check_plan(w, plan);
  return plan;
}

std::vector<DiskQueueKind> queues_here() {
  const TemporaryDirectory directory;
  ScratchFile file({.directory = directory.path()}, kDiskBlock);
  std::string why;
  if (make_uring_queue(file, {}, &why)) return {DiskQueueKind::threads, DiskQueueKind::io_uring};
  return {DiskQueueKind::threads};
}

TEST(DiskMoments, GiveTheBitsOfMemoryUnderEveryPlanAndByEveryQueue) {
  for (const Shape& shape : {Shape{}, Shape{.layers = 7, .tied = true, .clip = false, .precision = "fp32"},
                             Shape{.moments = "int8", .master = "stochastic"}}) {
    Tiny tiny(shape);
    const std::string expected = tiny.train(tiny.default_plan(), kDiskSteps);
    for (const DiskQueueKind kind : queues_here()) {
      tiny.machine().disk.queue.kind = kind;
      for (uint64_t seed = 0; seed < kDiskPlans; ++seed) {
        const Plan plan = disk_plan(tiny.workload(), seed);
        ASSERT_EQ(tiny.train(plan, kDiskSteps), expected) << "queue " << static_cast<int>(kind) << ", plan " << seed
                                                          << ": " << plan_to_json(tiny.workload(), plan).dump();
      }
    }
  }
}

TEST(DiskMoments, AreReadAndWrittenOnceAStep) {
  Tiny tiny({});
  const Plan plan = whole_plan(tiny.workload(), 0, false);
  const auto trainer = tiny.trainer(plan);
  const StepReport report = tiny.step(*trainer, 1);
  trainer->drain();
  const int64_t bytes = memory_need(tiny.workload(), plan).disk_bytes();
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(report.disk_read_bytes, bytes);
  EXPECT_EQ(report.disk_write_bytes, bytes);
}

TEST(DiskMoments, AStateThatIsSavedAndLoadedGoesOnToTheSameBits) {
  for (const Shape& shape : {Shape{}, Shape{.moments = "int8"}, Shape{.clip = false, .moments = "bf16"}}) {
    Tiny tiny(shape);
    const std::string expected = tiny.train(tiny.default_plan(), 4);
    const TemporaryDirectory directory;
    const auto first = tiny.trainer(disk_plan(tiny.workload(), 1));
    tiny.step(*first, 1);
    tiny.step(*first, 2);
    first->settle();
    save_state(directory / "state.safetensors", 2, first->records(), StateForm::stored, 2);
    const auto second = tiny.trainer(disk_plan(tiny.workload(), 2));
    load_state(directory / "state.safetensors", second->records(), 2);
    tiny.step(*second, 3);
    tiny.step(*second, 4);
    second->drain();
    EXPECT_EQ(hash_state(second->records(), 4).state, expected.substr(0, expected.find(' ')));
  }
}

TEST(DiskWeights, GiveTheBitsOfMemoryUnderEveryPlanAndByEveryQueue) {
  for (const Shape& shape : {Shape{}, Shape{.layers = 7, .tied = true, .clip = false, .precision = "fp32"},
                             Shape{.moments = "int8", .master = "stochastic"},
                             Shape{.freezing = {.train_only = {"model.layers.2.*", "model.norm.weight"}}}}) {
    Tiny tiny(shape);
    const std::string expected = tiny.train(tiny.default_plan(), kDiskSteps);
    for (const DiskQueueKind kind : queues_here()) {
      tiny.machine().disk.queue.kind = kind;
      for (uint64_t seed = 0; seed < kDiskPlans / 4; ++seed) {
        const Plan plan = whole_plan(tiny.workload(), seed, true);
        ASSERT_EQ(tiny.train(plan, kDiskSteps), expected)
            << "plan " << seed << ": " << plan_to_json(tiny.workload(), plan).dump();
      }
    }
  }
}

TEST(DiskWeights, TakeNoMemoryOfTheHostAndAreReadForEveryFetch) {
  Tiny tiny({});
  const Workload& w = tiny.workload();
  const Plan whole = whole_plan(w, 0, true), moments = whole_plan(w, 0, false);
  const auto trainer = tiny.trainer(whole);
  const Device& device = *tiny.machine().device;
  EXPECT_EQ(device.host_ledger().bytes(), memory_need(w, whole).host_bytes()) << device.host_ledger().table();
  int64_t weights = 0, fetched = 0;  // bytes
  for (int64_t record = 1; record < w.head_record(); ++record) {
    if (whole.weights_on_disk(record)) weights += w.disk_weight_bytes(record) + w.disk_low_bytes(record);
  }
  for (const Action& action : grouped_actions(w, whole, w.micro_batches)) {
    if (action.kind == ActionKind::stage_weights) fetched += w.disk_weight_bytes(action.record);
  }
  ASSERT_GT(weights, 0);
  EXPECT_EQ(memory_need(w, whole).disk_bytes(), memory_need(w, moments).disk_bytes() + weights);
  const StepReport report = tiny.step(*trainer, 1);
  trainer->drain();
  EXPECT_EQ(report.disk_read_bytes, memory_need(w, whole).disk_bytes() + fetched);
  EXPECT_EQ(report.disk_write_bytes, memory_need(w, whole).disk_bytes());
}

TEST(DiskWeights, AStateThatIsSavedAndLoadedGoesOnToTheSameBits) {
  Tiny tiny({});
  const std::string expected = tiny.train(tiny.default_plan(), 4);
  const TemporaryDirectory directory;
  const auto first = tiny.trainer(whole_plan(tiny.workload(), 1, true));
  tiny.step(*first, 1);
  tiny.step(*first, 2);
  first->settle();
  save_state(directory / "state.safetensors", 2, first->records(), StateForm::stored, 2);
  const auto second = tiny.trainer(whole_plan(tiny.workload(), 2, true));
  load_state(directory / "state.safetensors", second->records(), 2);
  tiny.step(*second, 3);
  tiny.step(*second, 4);
  second->drain();
  EXPECT_EQ(hash_state(second->records(), 4).state, expected.substr(0, expected.find(' ')));
}

TEST(DiskWeights, AreGeneratedFromAsThoseInMemoryAre) {
  for (const Shape& shape : {Shape{}, Shape{.layers = 4, .experts = 8, .experts_per_record = 3}}) {
    Tiny tiny(shape);
    std::vector<std::vector<int32_t>> answers;
    for (const bool whole : {false, true}) {
      const auto trainer = tiny.trainer(whole_plan(tiny.workload(), 3, whole));
      tiny.step(*trainer, 1);
      trainer->drain();
      GeneratorOptions options{.max_context = 24, .max_batch = 2, .chunk_tokens = 4};
      const ModelConfig model = model_config(shape);
      const int64_t least =
          CachedForward::least_bytes(*tiny.machine().device, *tiny.machine().ops, model, trainer->records(), options);
      for (const int64_t memory : {least, int64_t{1} << 30}) {
        options.memory_bytes = memory;
        Generator generator(*tiny.machine().device, *tiny.machine().ops, model, trainer->records(), options);
        for (const Generation& answer : generator.generate(
                 {{.prompt = {1, 2, 3}, .max_tokens = 12}, {.prompt = {5, 4, 3, 2, 1, 0, 1}, .max_tokens = 9}}, {}))
          answers.push_back(answer.ids);
      }
    }
    ASSERT_EQ(answers.size(), 8u);
    for (size_t i = 2; i < answers.size(); ++i) EXPECT_EQ(answers[i], answers[i % 2]);
  }
}

// A disk that fills up or fails in the middle of a run.
TEST(DiskMoments, AFailedTransferEndsTheRunInASentenceAndTheStateIsNotSaved) {
  for (const DiskQueueKind kind : queues_here()) {
    for (const bool writes : {true, false}) {
      Tiny tiny({});
      std::atomic<int> left = 12;  // transfers until the failure
      tiny.machine().disk.queue = {.kind = kind, .result = [&](bool write, int64_t, int64_t result) -> int64_t {
                                     return write == writes && --left < 0 ? (write ? -ENOSPC : -EIO) : result;
                                   }};
      const Plan plan = disk_plan(tiny.workload(), 0);
      const auto trainer = tiny.trainer(plan);
      const auto run = [&] {
        for (int64_t step = 1; step <= 20; ++step) tiny.step(*trainer, step);
        trainer->settle();
      };
      expect_error(ExitCode::io, {writes ? "cannot write" : "cannot read", writes ? "free space" : "check the disk"},
                   run);
    }
  }
}

// The range in the file of everything of this kind that lives on disk.
std::pair<int64_t, int64_t> place_on_disk(const Workload& w, const Plan& plan, ResourceKind kind) {
  const MemoryNeed need = memory_need(w, plan);
  const auto end = need.disk.begin() + static_cast<int64_t>(kind);
  const int64_t begin = std::accumulate(need.disk.begin(), end, int64_t{0});
  return {begin, begin + *end};
}

constexpr ResourceKind kOnDisk[] = {ResourceKind::disk_weights,  ResourceKind::disk_low_bits,
                                    ResourceKind::disk_moments,  ResourceKind::disk_gradient,
                                    ResourceKind::disk_boundary, ResourceKind::disk_kept};

// The first random plan with which something of this kind is read back from disk.
Plan plan_with(const Workload& w, ResourceKind kind) {
  for (uint64_t seed = 0;; ++seed) {
    const Plan plan = random_plan(w, seed);
    for (const Action& action : build_schedule(w, plan, StepMode::train).actions) {
      for (const Access& access : action.accesses) {
        if (access.resource.kind == kind && !access.write) return plan;
      }
    }
  }
}

// Damages each piece of this kind as soon as it has been written.
TEST(DiskDamage, ABitThatFlipsOnDiskEndsTheStepWhateverItIsPartOf) {
  for (const DiskQueueKind queue : queues_here()) {
    for (const ResourceKind kind : kOnDisk) {
      Tiny tiny({});
      const Plan plan = plan_with(tiny.workload(), kind);
      const auto [begin, end] = place_on_disk(tiny.workload(), plan, kind);
      const auto damage = [begin = begin, end = end](bool write, int64_t offset, int64_t result) {
        if (write && result > 0 && offset >= begin && offset < end) {
          EXPECT_TRUE(flip_scratch(offset + result - 1, offset + result, 1));
        }
        return result;
      };
      tiny.machine().disk.queue = {.kind = queue, .result = damage};
      const auto trainer = tiny.trainer(plan);
      const auto run = [&] {
        for (int64_t step = 1; step <= 4; ++step) tiny.step(*trainer, step);
        trainer->settle();
      };
      SCOPED_TRACE(resource_name(kind));
      expect_error(ExitCode::io, {"changed", "megatrain-scratch-"}, run);
    }
  }
}

TEST(DiskDamage, ABitThatFlipsBetweenStepsIsFoundByWhateverReadsTheState) {
  for (const ResourceKind kind :
       {ResourceKind::disk_weights, ResourceKind::disk_low_bits, ResourceKind::disk_moments}) {
    SCOPED_TRACE(resource_name(kind));
    Tiny tiny({});
    const Plan plan = plan_with(tiny.workload(), kind);
    const auto trainer = tiny.trainer(plan);
    tiny.step(*trainer, 1);
    trainer->settle();
    hash_state(trainer->records(), 1);
    const auto [begin, end] = place_on_disk(tiny.workload(), plan, kind);
    ASSERT_TRUE(flip_scratch(begin, end, kDiskBlock));
    const TemporaryDirectory directory;
    const auto refused = [](const auto& action) { expect_error(ExitCode::io, {"changed"}, action); };
    refused([&] { hash_state(trainer->records(), 1); });
    for (const StateForm form : {StateForm::stored, StateForm::fp32})
      refused([&] { save_state(directory / "state.safetensors", 1, trainer->records(), form, 2); });
    if (kind == ResourceKind::disk_weights) refused([&] { trainer->evaluate(make_batch({}, 2)); });
  }
}

TEST(DiskMoments, ADirectoryThatIsNotGivenIsAskedForBeforeAnythingIsAllocated) {
  Tiny tiny({});
  tiny.machine().disk.place.directory.clear();
  const Device& device = *tiny.machine().device;
  const int64_t before = device.ledger().allocations() + device.host_ledger().allocations();
  expect_error(ExitCode::bad_config, {"memory.nvme_path"}, [&] { tiny.trainer(disk_plan(tiny.workload(), 0)); });
  EXPECT_EQ(device.ledger().allocations() + device.host_ledger().allocations(), before);
}

}  // namespace
}  // namespace megatrain::tiny
