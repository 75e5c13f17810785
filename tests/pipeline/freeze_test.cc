// Frozen tensors never change and cost nothing. Trained tensors get the same gradients as when nothing is frozen.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/verify.h"
#include "tests/pipeline/tiny.h"
#include "tests/support/plan_changes.h"

namespace megatrain::tiny {

namespace {

constexpr uint64_t kFreezePlans = kSanitized ? 1 : 10;
constexpr uint64_t kFrozenSchedules = kSanitized ? 5 : 30;
constexpr uint64_t kBf16SourcePlans = kSanitized ? 1 : 4;
constexpr int64_t kFrozenSteps = 3;

struct FreezeCase {
  const char* name;
  TrainRules freezing;
  Shape shape = {};
  Shape frozen() const {
    Shape with = shape;
    with.freezing = freezing;
    return with;
  }
};

const std::vector<FreezeCase>& cases() {
  static const std::vector<FreezeCase> list = {
      {"embedding", {.freeze = {"model.embed_tokens.*"}}},
      {"first_blocks", {.freeze = {"model.embed_tokens.*", "model.layers.[0-2].*"}}},
      {"first_blocks_tied", {.freeze = {"model.embed_tokens.*", "model.layers.[0-3].*"}}, {.tied = true}},
      {"blocks_between_tied", {.freeze = {"model.layers.[24].*"}}, {.tied = true, .clip = false}},
      {"all_blocks_tied", {.freeze = {"model.layers.*"}}, {.tied = true}},
      {"only_q_proj", {.train_only = {"*.q_proj.weight"}}, {.clip = false}},
      {"q_and_v", {.train_only = {"*.q_proj.weight", "*.v_proj.weight", "*.up_proj.weight"}}},
      {"only_norms", {.train_only = {"*norm.weight"}}, {.tied = true}},
      {"only_norms_fp32", {.train_only = {"*norm.weight"}}, {.precision = "fp32"}},
      {"only_lm_head", {.train_only = {"lm_head.weight"}}},
      {"only_final_norm", {.train_only = {"model.norm.weight"}}, {.clip = false, .precision = "fp32"}},
      {"last_block_but_its_mlp", {.freeze = {"*.mlp.*"}, .train_only = {"model.layers.5.*"}}},
      {"each_block_another",
       {.freeze = {"model.layers.0.mlp.*", "model.layers.1.*_proj.weight", "model.layers.3.*", "*.4.*.k_proj.*"}},
       {.micro_batches = 2}},
      {"first_blocks_bf16_source", {.freeze = {"model.embed_tokens.*", "model.layers.[0-2].*"}}, {.bf16_source = true}},
      {"k_proj_bf16_source", {.freeze = {"*.k_proj.weight"}}, {.clip = false, .bf16_source = true}},
      {"only_norms_bf16_source", {.train_only = {"*norm.weight"}}, {.tied = true, .bf16_source = true}}};
  return list;
}

using Gradients = std::map<std::string, std::vector<uint8_t>>;  // by tensor; the embedding's rows one after the other

struct FirstStep {
  StepReport report;
  Gradients gradients;
};

FirstStep first_step(Tiny& tiny, const Plan& plan) {
  FirstStep first;
  const auto trainer = tiny.trainer(plan);
  const auto note = [&](int64_t index, const HostGradient& gradient) {
    const LayerRecord& record = trainer->records()[static_cast<size_t>(index)];
    const int64_t element = dtype_bytes(record.dtype());
    const auto* bytes = reinterpret_cast<const uint8_t*>(gradient.data);
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (!tensor.trainable) continue;
      const int64_t count =
          gradient.rows ? static_cast<int64_t>(gradient.rows->size()) * tensor.cols : tensor.elements();
      const uint8_t* begin = bytes + (gradient.rows ? 0 : tensor.state_offset) * element;
      first.gradients[tensor.name].assign(begin, begin + count * element);
    }
  };
  trainer->updater().observe(note);
  first.report = tiny.step(*trainer, 1);
  trainer->drain();
  trainer->updater().observe({});
  trainer->device_gradients(note);
  return first;
}

// Computed in double, as for the reported figures.
double norm_of(const Gradients& gradients, const std::string& precision) {
  double squares = 0;
  for (const auto& [name, bytes] : gradients) {
    const size_t element = precision == "fp32" ? 4 : 2;
    for (size_t i = 0; i < bytes.size(); i += element) {
      float value = 0;
      std::memcpy(reinterpret_cast<uint8_t*>(&value) + 4 - element, &bytes[i], element);
      squares += static_cast<double>(value) * value;
    }
  }
  return std::sqrt(squares);
}

std::map<std::string, std::vector<float>> masters(const std::vector<LayerRecord>& records, bool trained) {
  std::map<std::string, std::vector<float>> values;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (tensor.trainable != trained) continue;
      std::vector<float>& into = values[tensor.name];
      into.resize(static_cast<size_t>(tensor.elements()));
      record.read_master(tensor, 0, tensor.elements(), into.data());
    }
  }
  return values;
}

class Freezing : public ::testing::TestWithParam<FreezeCase> {};

TEST_P(Freezing, TrainedTensorsGetTheirGradientsAndTheNormIsOverThemAlone) {
  Shape all = GetParam().shape, some = GetParam().frozen();
  all.dumps = some.dumps = true;
  Tiny whole(all), frozen(some);
  const FirstStep expected = first_step(whole, whole.default_plan());
  for (const uint64_t seed : {0, 2, 5}) {
    const FirstStep found = first_step(frozen, random_plan(frozen.workload(), seed));
    EXPECT_EQ(found.report.loss, expected.report.loss);
    ASSERT_FALSE(found.gradients.empty());
    EXPECT_LT(found.gradients.size(), expected.gradients.size());
    for (const auto& [name, gradient] : found.gradients) EXPECT_EQ(gradient, expected.gradients.at(name)) << name;
    const double norm = norm_of(found.gradients, GetParam().shape.precision);
    EXPECT_NEAR(found.report.grad_norm, norm, 1e-12 * norm);
  }
}

TEST_P(Freezing, FrozenTensorsStayBitForBitAndTheOthersMove) {
  Tiny tiny(GetParam().frozen());
  const auto trainer = tiny.trainer(random_plan(tiny.workload(), 3));
  const auto frozen = masters(trainer->records(), false), trained = masters(trainer->records(), true);
  ASSERT_FALSE(frozen.empty());
  for (int64_t step = 1; step <= kFrozenSteps; ++step) tiny.step(*trainer, step);
  trainer->drain();
  EXPECT_EQ(masters(trainer->records(), false), frozen);
  for (const auto& [name, values] : masters(trainer->records(), true)) EXPECT_NE(values, trained.at(name)) << name;
}

TEST_P(Freezing, EveryRandomPlanGivesOneStateHash) {
  Tiny tiny(GetParam().frozen());
  const std::string expected = tiny.train(tiny.default_plan(), kFrozenSteps);
  for (uint64_t seed = 0; seed < kFreezePlans; ++seed) {
    const Plan plan = random_plan(tiny.workload(), seed);
    ASSERT_EQ(tiny.train(plan, kFrozenSteps), expected)
        << "plan " << seed << ": " << plan_to_json(tiny.workload(), plan).dump();
  }
}

TEST_P(Freezing, MemoryIsWhatThePlanSaidAndLessThanWithoutFreezing) {
  Tiny whole(GetParam().shape), tiny(GetParam().frozen());
  const Device& device = *tiny.machine().device;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Plan plan = random_plan(tiny.workload(), seed);
    const auto trainer = tiny.trainer(plan);
    const MemoryNeed need = memory_need(tiny.workload(), plan);
    EXPECT_EQ(device.ledger().bytes(), need.hbm_bytes()) << device.ledger().table();
    EXPECT_EQ(device.host_ledger().bytes(), need.host_bytes()) << device.host_ledger().table();
    int64_t frozen = 0;
    for (int64_t record = 0; record < tiny.workload().record_count(); ++record)
      frozen += whole.workload().record(record).trained - tiny.workload().record(record).trained;
    const auto in_memory = [&](Tiny& model) {  // what is on disk differs for each random plan
      Plan same = random_plan(model.workload(), seed);
      leave_the_disk(same);
      const MemoryNeed all = memory_need(model.workload(), same);
      return all.hbm_bytes() + all.host_bytes();
    };
    EXPECT_LE(in_memory(tiny), in_memory(whole) - 8 * frozen);
  }
}

TEST_P(Freezing, FrozenRecordsHaveNoGradientActionsAndBackwardStopsAtTheLowestTrained) {
  Tiny tiny(GetParam().frozen());
  const Workload& w = tiny.workload();
  for (uint64_t seed = 0; seed < kFrozenSchedules; ++seed) {
    const Plan plan = random_plan(w, seed);
    const Schedule schedule = build_schedule(w, plan, StepMode::train);
    const auto violations = verify(schedule);
    ASSERT_TRUE(violations.empty()) << violations.front();
    std::map<int64_t, int> forward, updated;
    bool turned = false;
    for (const Action& action : schedule.actions) {
      turned = turned || action.kind == ActionKind::backward || action.kind == ActionKind::finish_losses;
      switch (action.kind) {
        case ActionKind::forward: forward[action.record]++; break;
        case ActionKind::backward:
        case ActionKind::fetch_activations:
        case ActionKind::offload_activations: EXPECT_GE(action.record, w.first_trained_phase()); break;
        case ActionKind::fetch_weights:
          if (turned && plan.sweeps.size() == 1) {
            EXPECT_GE(action.record, w.first_trained_phase());
          }
          break;
        case ActionKind::update:
        case ActionKind::update_on_device: updated[action.record]++; [[fallthrough]];
        case ActionKind::merge_rows:
        case ActionKind::finish_gradient:
        case ActionKind::offload_gradient:
        case ActionKind::fetch_state:
        case ActionKind::return_state: EXPECT_TRUE(w.is_trained(action.record)); break;
        default: break;
      }
    }
    for (int64_t record = 0; record < w.record_count(); ++record) EXPECT_EQ(updated[record], w.is_trained(record));
    for (int64_t block = 1; block < w.head_phase(); ++block) {
      const bool repeated = block >= w.first_trained_phase() && block + 1 < w.head_phase() &&
                            plan.above_boundary(block + 1, w.first_trained_phase()) > 0;
      EXPECT_EQ(forward[block], w.micro_batches * (repeated ? 2 : 1));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, Freezing, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Freezing, FrozenTensorsOfABf16SourceHaveNoLowBitsAndEveryBitIsTheSame) {
  for (const FreezeCase& with : cases()) {
    if (with.shape.precision == "fp32") continue;
    Shape some = with.frozen();
    some.rounded = true;
    some.bf16_source = false;
    Tiny kept(some);
    some.bf16_source = true;
    Tiny dropped(some);
    int64_t saved = 0;
    for (int64_t record = 0; record < kept.workload().record_count(); ++record) {
      const RecordWork &before = kept.workload().record(record), &now = dropped.workload().record(record);
      EXPECT_EQ(before.low, before.elements);
      EXPECT_LE(now.low, before.low);
      if (now.trained == 0) {
        EXPECT_EQ(now.low, 0) << with.name << " " << record;
      }
      saved += 2 * (before.low - now.low);
    }
    EXPECT_GT(saved, 0);
    for (uint64_t seed = 0; seed < kBf16SourcePlans; ++seed) {
      const Plan plan = random_plan(kept.workload(), seed);
      Plan in_memory = plan;  // on disk, low bits take whole blocks and pass through slabs
      leave_the_disk(in_memory);
      const MemoryNeed before = memory_need(kept.workload(), in_memory),
                       now = memory_need(dropped.workload(), in_memory);
      EXPECT_EQ(before.host_bytes() + before.hbm_bytes() - now.host_bytes() - now.hbm_bytes(), saved) << with.name;
      ASSERT_EQ(dropped.train(plan, 2), kept.train(plan, 2)) << with.name << ", plan " << seed;
    }
  }
}

TEST(Freezing, DroppingAnySingleWaitIsFound) {
  for (const FreezeCase& with : cases()) {
    Tiny tiny(with.frozen());
    const Plan plan = random_plan(tiny.workload(), 4);
    ASSERT_FALSE(plan.serial);
    const Schedule schedule = build_schedule(tiny.workload(), plan, StepMode::train);
    for (const WaitKind& kind : wait_kinds(schedule))
      EXPECT_FALSE(verify(without_waits(schedule, kind), 1).empty()) << with.name << ": " << wait_kind_name(kind);
  }
}

}  // namespace
}  // namespace megatrain::tiny
