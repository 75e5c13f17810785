// What the planner guarantees about memory and time, over many workloads and budgets.
#include <algorithm>
#include <ctime>
#include <map>
#include <set>

#include "megatrain/base/rng.h"
#include "megatrain/base/units.h"
#include "megatrain/io/json.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/describe.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/planner.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/schedule.h"
#include "tests/plan/least_budget.h"
#include "tests/support/dense_workload.h"
#include "tests/support/fixtures.h"
#include "tests/support/plan_changes.h"

namespace megatrain {

namespace {

// A random workload: from a few layers that are small compared with their activations, to the reverse.
Workload some_workload(uint64_t seed) {
  uint64_t index = 0;
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random_below(seed, 11, index++, bound)); };
  Workload w;
  DenseShape shape;
  shape.blocks = 1 + below(40);
  shape.hidden = 128 << below(6);
  shape.vocab = 1000 + below(150000);
  shape.block_elements = (4 + below(10)) * shape.hidden * shape.hidden;
  shape.tied = below(2) == 0;
  shape.head_elements = shape.tied ? 128 : shape.vocab * shape.hidden + 128;
  shape.head_flops = 2.0 * static_cast<double>(shape.vocab * shape.hidden);
  shape.dtype = below(2) ? DType::bf16 : DType::f32;
  w.micro_batches = 1 + below(8);
  w.micro_tokens = 128 << below(8);
  w.clip = below(2) == 0;
  w.workspace_bytes = w.micro_tokens * shape.hidden * 20;
  w.scratch_bytes = below(1 << 20);
  w.input_bytes = w.tokens() * 32;
  w.rope_bytes = 1 << 16;
  w.device_base_bytes = below(2) * 500 * kMiB;
  make_dense(w, shape);
  return w;
}

// The same with some records frozen or partly frozen, often the lowest; never all.
Workload frozen_workload(uint64_t seed) {
  Workload w = some_workload(seed);
  const auto below = [&](uint64_t index, uint64_t bound) { return random_below(seed, 12, index, bound); };
  const int64_t lowest = static_cast<int64_t>(below(0, static_cast<uint64_t>(w.record_count())));
  std::vector<int64_t> trained;
  for (int64_t record = 0; record < w.record_count(); ++record) {
    const uint64_t part = record < lowest ? 0 : below(static_cast<uint64_t>(record) + 1, 3);
    trained.push_back(part == 0 ? 0 : part == 1 ? 128 : w.record(record).elements);
  }
  trained.back() = 128;
  freeze(w, trained);
  return w;
}

Workload six_blocks() {
  Workload w = some_workload(2);
  w.micro_batches = 4;
  make_dense(w, {.hidden = w.record(0).row_width,
                 .vocab = w.record(0).rows,
                 .tied = w.record(0).whole,
                 .dtype = w.activation_dtype,
                 .blocks = 6,
                 .block_elements = w.record(1).elements,
                 .head_elements = w.records.back().elements});
  return w;
}

constexpr uint64_t kWorkloads = 12;
constexpr std::array kPlanes = {ResourceKind::record_weights, ResourceKind::low_bits,     ResourceKind::first_moments,
                                ResourceKind::second_moments, ResourceKind::disk_weights, ResourceKind::disk_low_bits,
                                ResourceKind::disk_moments};

// Bytes of the records' planes, without the padding of those on disk.
int64_t plane_bytes(const Workload& w, const Plan& plan) {
  const MemoryNeed need = memory_need(w, plan);
  int64_t bytes = 0;
  for (const ResourceKind plane : kPlanes) bytes += need.bytes_of(plane);
  for (int64_t record = 0; record < w.record_count(); ++record) {
    if (plan.moments_on_disk(record)) bytes -= 2 * (w.disk_moment_bytes(record) - w.moment_bytes(record));
    if (plan.weights_on_disk(record))
      bytes -= w.disk_weight_bytes(record) - w.weight_bytes(record) + w.disk_low_bytes(record) - w.low_bytes(record);
  }
  return bytes;
}

const MachineProfile kMachine;
constexpr int64_t kPlenty = int64_t{1} << 60;

Plan planned(const Workload& w, int64_t gpu, int64_t host = kPlenty) {
  return make_plan(w, {.gpu_bytes = gpu, .host_bytes = host}, kMachine, nullptr);
}

// The least device memory for which there is a plan.
int64_t least_gpu_bytes(const Workload& w) {
  return least_budget(w, kMachine, kPlenty,
                      [](int64_t gpu) { return Budgets{.gpu_bytes = gpu, .host_bytes = kPlenty}; });
}

// Device budgets from the least that works to more than everything needs.
std::vector<int64_t> budgets_of(const Workload& w, int64_t count) {
  const int64_t least = least_gpu_bytes(w), most = memory_need(w, planned(w, kPlenty)).hbm_bytes() * 11 / 10;
  std::vector<int64_t> budgets;
  for (int64_t i = 0; i <= count; ++i) budgets.push_back(least + std::max<int64_t>(most - least, 0) / count * i);
  return budgets;
}

}  // namespace

TEST(Planner, EveryPlanIsValidAndWithinItsBudgets) {
  for (uint64_t seed = 0; seed < kWorkloads; ++seed) {
    const Workload w = some_workload(seed);
    for (const int64_t gpu : budgets_of(w, 4)) {
      const Budgets budgets{.gpu_bytes = gpu, .host_bytes = memory_need(w, planned(w, gpu)).host_bytes()};
      const Plan plan = make_plan(w, budgets, kMachine, nullptr);
      EXPECT_NO_THROW(check_plan(w, plan)) << seed;
      EXPECT_NO_THROW(check_fit(w, plan, budgets)) << seed;
    }
  }
}

TEST(Planner, WhereTheCpuComputesItIsHostMemoryThatIsShort) {
  const Workload w = some_workload(0);
  const Budgets budgets{.gpu_bytes = least_gpu_bytes(w) - 1, .host_bytes = int64_t{1} << 50, .device_is_host = true};
  try {
    make_plan(w, budgets, kMachine, nullptr);
    FAIL() << "it fits";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), ExitCode::cannot_fit);
    EXPECT_NE(what.find("host memory"), std::string::npos) << what;
    EXPECT_NE(what.find("memory.gpu"), std::string::npos) << what;
    EXPECT_EQ(what.find("GPU"), std::string::npos) << what;
  }
}

TEST(Planner, RefusesOneByteBelowWhatItNeedsAndSaysHowMuchThatIs) {
  for (uint64_t seed = 0; seed < kWorkloads; ++seed) {
    const Workload w = some_workload(seed);
    const int64_t gpu = least_gpu_bytes(w);
    expect_error(ExitCode::cannot_fit, {"device memory", format_bytes(gpu), "memory.gpu"},
                 [&] { planned(w, gpu - 1); });
    // the least possible is no more than this plan needs
    const int64_t host = least_budget(w, kMachine, memory_need(w, planned(w, gpu)).host_bytes(),
                                      [gpu](int64_t bytes) { return Budgets{.gpu_bytes = gpu, .host_bytes = bytes}; });
    expect_error(ExitCode::cannot_fit, {"host memory", format_bytes(host), "memory.host"},
                 [&] { planned(w, gpu, host - 1); });
  }
}

TEST(Planner, SaysWhetherThereIsAPlanWithoutMakingIt) {
  int64_t with = 0, without = 0;
  for (uint64_t seed = 0; seed < kWorkloads; ++seed) {
    const Workload w = some_workload(seed);
    const int64_t least = least_gpu_bytes(w);
    const int64_t host = memory_need(w, planned(w, least)).host_bytes();
    for (const int64_t gpu : {least - 1, least, 2 * least}) {
      for (const Budgets& budgets :
           {Budgets{.gpu_bytes = gpu, .host_bytes = host}, Budgets{.gpu_bytes = gpu, .host_bytes = host / 2},
            Budgets{.gpu_bytes = gpu, .host_bytes = host / 2, .disk_bytes = kPlenty}}) {
        const bool fits = can_fit(w, budgets, kMachine);
        (fits ? with : without) += 1;
        if (fits) {
          EXPECT_NO_THROW(make_plan(w, budgets, kMachine, nullptr)) << seed;
        } else {
          EXPECT_THROW(make_plan(w, budgets, kMachine, nullptr), Error) << seed;
        }
      }
    }
  }
  EXPECT_GT(with, 0);
  EXPECT_GT(without, 0);
}

TEST(Planner, ALargerBudgetIsNeverSlower) {
  const MachineProfile slow{
      .flops_per_s = 60e9, .h2d_bytes_per_s = 8e9, .d2h_bytes_per_s = 8e9, .dram_bytes_per_s = 20e9};
  for (uint64_t seed = 0; seed < kWorkloads; ++seed) {
    const Workload w = some_workload(seed);
    const std::vector<int64_t> budgets = budgets_of(w, 6);
    for (const MachineProfile& machine : {kMachine, slow}) {
      double before = 1e300;
      for (const int64_t gpu : budgets) {
        const Plan plan = make_plan(w, {.gpu_bytes = gpu, .host_bytes = kPlenty}, machine, nullptr);
        const double now = estimate(w, plan, machine).step_s;
        EXPECT_LE(now, before * (1 + 1e-12))
            << "workload " << seed << ", " << gpu << " bytes: " << plan_to_json(w, plan);
        before = now;
      }
    }
  }
}

TEST(Planner, OfAFrozenModelTooEveryPlanIsWithinItsBudgetsAndALargerOneIsNeverSlower) {
  for (uint64_t seed = 0; seed < kWorkloads; seed += 2) {
    const Workload w = frozen_workload(seed);
    double before = 1e300;
    for (const int64_t gpu : budgets_of(w, 4)) {
      const Plan plan = planned(w, gpu);
      EXPECT_NO_THROW(check_plan(w, plan)) << seed;
      EXPECT_LE(memory_need(w, plan).hbm_bytes(), gpu) << seed;
      const double now = estimate(w, plan, kMachine).step_s;
      EXPECT_LE(now, before * (1 + 1e-12)) << "workload " << seed << ", " << gpu << " bytes";
      before = now;
    }
  }
}

// Attention costs as much as all matmuls of a block, and its output is as large as the block's input.
Workload long_workload(uint64_t seed) {
  Workload w = some_workload(seed);
  for (int64_t p = 1; p < w.head_phase(); ++p) {
    PhaseWork& phase = w.phases[static_cast<size_t>(p)];
    const double matmuls = phase.forward_flops, all = 2 * matmuls;
    const int64_t input = w.activation_bytes(p);
    phase.levels = block_levels({0, input, 3 * input, 8 * input, 12 * input}, {all, matmuls, matmuls / 2, 0, 0},
                                {0, matmuls, all - matmuls / 2, matmuls, matmuls});
    phase.forward_flops = all;
    phase.backward_flops = 2 * all;
  }
  return w;
}

TEST(Planner, OfLongSequencesTooALargerBudgetOfEitherMemoryIsNeverSlower) {
  int64_t away = 0;
  for (uint64_t seed = 0; seed < kWorkloads; seed += 2) {
    const Workload w = long_workload(seed);
    const int64_t least = least_gpu_bytes(w), host = memory_need(w, planned(w, least)).host_bytes();
    std::map<std::pair<int64_t, int64_t>, double> seconds;  // by the fractions of both budgets
    for (int64_t gpu = 0; gpu < 4; ++gpu) {
      for (int64_t memory = 0; memory < 4; ++memory) {
        const Budgets budgets{.gpu_bytes = least * (4 + gpu) / 4, .host_bytes = host * (4 + memory) / 4};
        const Plan plan = make_plan(w, budgets, kMachine, nullptr);
        EXPECT_NO_THROW(check_plan(w, plan)) << seed;
        EXPECT_NO_THROW(check_fit(w, plan, budgets)) << seed;
        EXPECT_TRUE(can_fit(w, budgets, kMachine)) << seed;
        away += std::ranges::count(plan.phases, Tier::host, &PhasePlan::outputs);
        const double now = seconds[{gpu, memory}] = estimate(w, plan, kMachine).step_s;
        for (const auto& smaller : {std::pair{gpu - 1, memory}, std::pair{gpu, memory - 1}}) {
          const auto before = seconds.find(smaller);
          if (before == seconds.end()) continue;
          EXPECT_LE(now, before->second * (1 + 1e-12)) << seed << " " << plan_to_json(w, plan);
        }
      }
    }
  }
  EXPECT_GT(away, 0);
}

TEST(Planner, A70BillionModelWithFourTrainedLayersNeedsLittleMoreThanItsWeights) {
  Workload w = some_workload(0);
  w.clip = true;
  w.micro_batches = 4;
  w.micro_tokens = 4096;
  constexpr int64_t kBlock = 855654400, kHidden = 8192, kVocab = 128256;
  const int64_t table = kVocab * kHidden;
  make_dense(w, {.hidden = kHidden,
                 .vocab = kVocab,
                 .blocks = 80,
                 .block_elements = kBlock,
                 .head_elements = table + kHidden,
                 .head_flops = 2.0 * static_cast<double>(table)});
  const Workload whole = w;
  std::vector<int64_t> trained(82, 0);
  for (size_t record = 77; record <= 80; ++record) trained[record] = kBlock;
  freeze(w, trained);
  const Plan frozen = planned(w, 48 * kGiB), before = planned(whole, 48 * kGiB);
  EXPECT_LE(memory_need(w, frozen).host_bytes(), 4 * w.all_elements() + 4 * 12 * kBlock + 8 * kGiB);
  EXPECT_GE(memory_need(whole, before).host_bytes(), 12 * w.all_elements() - 48 * kGiB);
  EXPECT_LT(estimate(w, frozen, kMachine).step_s, 0.7 * estimate(whole, before, kMachine).step_s);
}

// The host updates slowly: some states visit the device in turns, interleaved with those that the host updates.
TEST(Planner, WhereTheHostsUpdatesBoundTheStepVisitsTakeTurns) {
  Workload w = six_blocks();
  w.clip = true;
  make_dense(w,
             {.hidden = 1 << 10, .vocab = 1 << 10, .blocks = 6, .block_elements = 1 << 30, .head_elements = 1 << 20});
  ASSERT_GT(w.visiting_bytes(1), kVisitingBytes);
  MachineProfile machine;
  machine.dram_bytes_per_s = machine.h2d_bytes_per_s / 2;
  const Budgets budgets{.gpu_bytes = kPlenty, .host_bytes = kPlenty, .state_on_host = true};
  const Plan plan = make_plan(w, budgets, machine, nullptr);
  EXPECT_GE(plan.rings.visit_slots, 2);
  EXPECT_GE(plan.visitors(), 3);
  Plan host = plan;
  end_visits(w, host);
  EXPECT_LT(estimate(w, plan, machine).step_s, 0.8 * estimate(w, host, machine).step_s);

  // a visitor's gradient waits on the host and comes with its state; no other lane is involved
  std::map<ActionKind, int> visits;
  for (const Action& action : build_schedule(w, plan, StepMode::train).actions) {
    if (action.lane == Lane::visit_in || action.lane == Lane::visit) ++visits[action.kind];
    for (const Access& access : action.accesses) {
      const bool in_slot = access.resource.kind == ResourceKind::visiting_gradient;
      EXPECT_TRUE(!in_slot || access.resource.a < plan.rings.visit_slots);
    }
  }
  const int64_t visitors = plan.visitors();
  EXPECT_EQ(visits[ActionKind::fetch_state], visitors);
  EXPECT_EQ(visits[ActionKind::update_on_device], visitors);

  w.gradients_stay = true;  // a dump reads them on the device
  EXPECT_EQ(make_plan(w, budgets, machine, nullptr).rings.visit_slots, 0);
}

TEST(Planner, SaysWhatItGaveUp) {
  const Workload w = some_workload(3);
  ASSERT_GT(w.layer_record_count(), 1);
  std::vector<std::string> tight, roomy;
  make_plan(w, {.gpu_bytes = least_gpu_bytes(w), .host_bytes = kPlenty}, kMachine, &tight);
  make_plan(w, {.gpu_bytes = kPlenty, .host_bytes = kPlenty}, kMachine, &roomy);
  EXPECT_EQ(tight.size(), 3u);
  EXPECT_TRUE(roomy.empty());
}

TEST(Planner, ASmallHostIsSparedByKeepingInputsOnTheDevice) {
  const Workload w = some_workload(8);
  const int64_t least = memory_need(w, planned(w, kPlenty)).host_bytes();
  ASSERT_LT(least, memory_need(w, planned(w, least_gpu_bytes(w))).host_bytes());
  EXPECT_NO_THROW(planned(w, kPlenty, least));
}

TEST(Planner, WithPlentyEverythingStaysOnTheDevice) {
  const Workload w = some_workload(5);
  const Plan plan = planned(w, kPlenty);
  EXPECT_EQ(plan.streaming(w), 0);
  EXPECT_EQ(std::ranges::count(plan.layer_phases(), Tier::hbm, &PhasePlan::input), w.layer_phases());
  EXPECT_EQ(keeping(w, plan, "everything"), w.layer_phases());
  const Plan on_host =
      make_plan(w, {.gpu_bytes = kPlenty, .host_bytes = kPlenty, .state_on_host = true}, kMachine, nullptr);
  EXPECT_EQ(std::ranges::count(on_host.records, Tier::host, &RecordPlan::state), w.record_count());
  const int64_t not_fetched = w.by_rows(0) ? w.record(0).elements : 0;  // only its rows are
  EXPECT_EQ(fetched_weight_bytes(w, on_host), (w.all_elements() - not_fetched) * w.element_bytes(0));
}

TEST(Explain, SaysWhereKeptOutputsWait) {
  Workload w = six_blocks();
  Plan plan = planned(w, kPlenty);
  keep(w, plan, "outputs");
  plan.phase(6).keep = Keep::nothing;
  const auto said = [&](const std::string& part) {
    plan.rings.output_slots = plan.outputs_wait_elsewhere() ? 2 : 0;
    plan.rings.activation_slabs = plan.activations_on_disk() ? 1 : 0;
    check_plan(w, plan);
    const std::string text = explain(w, plan, estimate(w, plan, kMachine));
    EXPECT_NE(text.find("activations kept: nothing in 1 block, " + part + "\n"), std::string::npos) << text;
  };
  said("outputs in 5 blocks");
  plan.phase(2).outputs = plan.phase(3).outputs = Tier::host;
  said("outputs in 5 blocks, 2 of them in host memory");
  plan.phase(1).outputs = Tier::disk;
  said("outputs in 5 blocks, 2 of them in host memory and 1 on disk");
  outputs_wait(plan, Tier::host);
  plan.phase(6).outputs = Tier::hbm;
  said("outputs in 5 blocks, all of them in host memory");
}

// Kept outputs that wait elsewhere cross the link once in each direction and take memory there; the device needs only
// two slots.
TEST(Estimate, KeptOutputsThatWaitOnTheHostCostTheLinkAndSpareTheDevice) {
  Workload w = six_blocks();
  Plan here = planned(w, kPlenty);
  here.sweeps = {4};
  keep(w, here, "outputs");
  Plan away = here;
  outputs_wait(away, Tier::host);
  away.rings.output_slots = 2;
  const int64_t bytes = w.micro_batches * w.kept_bytes(1, level_named(w, 1, "outputs"));
  const MemoryNeed before = memory_need(w, here), after = memory_need(w, away);
  EXPECT_EQ(before.hbm_bytes() - after.hbm_bytes(), 4 * bytes);
  EXPECT_EQ(after.host_bytes() - before.host_bytes(), 6 * bytes);
  const Estimate e = estimate(w, here, kMachine), moved = estimate(w, away, kMachine);
  EXPECT_EQ(e.compute_s, moved.compute_s);
  EXPECT_NEAR(moved.d2h_s - e.d2h_s, 6 * static_cast<double>(bytes) / kMachine.d2h_bytes_per_s, 1e-9);
  // the outputs of the last two blocks are still in their slots at the turn
  EXPECT_NEAR(moved.h2d_s - e.h2d_s, 4 * static_cast<double>(bytes) / kMachine.h2d_bytes_per_s, 1e-9);
  outputs_wait(away, Tier::disk);
  away.rings.activation_slabs = 3;
  const int64_t stored = w.micro_batches * round_up(w.kept_bytes(1, level_named(w, 1, "outputs")), kDiskAlignment);
  EXPECT_EQ(memory_need(w, away).disk_bytes(), 6 * stored);
  EXPECT_NEAR(estimate(w, away, kMachine).disk_write_s,
              6 * static_cast<double>(stored) / kMachine.disk_write_bytes_per_s, 1e-9);
}

TEST(MemoryNeed, EveryOperandOfEveryScheduleHasAPlaceOfItsOwn) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Workload w = seed % 2 ? some_workload(seed % kWorkloads) : frozen_workload(seed);
    const Plan plan = random_plan(w, seed);
    const Inventory inventory(w, plan);
    std::map<ResourceKind, std::map<int64_t, Resource>> at;  // by offset
    for (const StepMode mode : {StepMode::train, StepMode::evaluate}) {
      for (const Action& action : build_schedule(w, plan, mode).actions) {
        for (const auto& [as, resource, write] : action.accesses) {
          if (resource.kind == ResourceKind::record_state || resource.kind == ResourceKind::record_weights) continue;
          const int64_t offset = inventory.offset(resource), end = offset + inventory.bytes(resource);
          ASSERT_LE(end, inventory.need().bytes_of(resource.kind)) << resource_name(resource.kind);
          ASSERT_EQ(at[resource.kind].try_emplace(offset, resource).first->second, resource);
          const auto next = at[resource.kind].upper_bound(offset);
          ASSERT_TRUE(next == at[resource.kind].end() || end <= next->first) << resource_name(resource.kind);
        }
      }
    }
  }
  const Workload w = some_workload(0);
  const Inventory inventory(w, random_plan(w, 0));
  EXPECT_THROW(inventory.offset({ResourceKind::weight_slot, 1000}), Error);
  EXPECT_THROW(inventory.offset({ResourceKind::losses, 0, w.micro_batches}), Error);
}

TEST(MemoryNeed, StateTakesTwelveBytesAParameter) {
  for (uint64_t seed = 0; seed < kWorkloads; ++seed) {
    Workload w = some_workload(seed);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      set_dtype(w, dtype);
      EXPECT_EQ(plane_bytes(w, random_plan(w, seed)), 12 * w.all_elements());
    }
  }
}

TEST(MemoryNeed, StateOfFrozenTensorsTakesFourBytesAParameter) {
  for (uint64_t seed = 0; seed < kWorkloads; ++seed) {
    const Workload w = frozen_workload(seed);
    int64_t trained = 0;
    for (const RecordWork& record : w.records) trained += record.trained;
    EXPECT_EQ(plane_bytes(w, random_plan(w, seed)), 4 * w.all_elements() + 8 * trained);
  }
}

TEST(MemoryNeed, StateOfFrozenTensorsOfABfloat16SourceTakesTwoBytesAParameter) {
  for (uint64_t seed = 0; seed < kWorkloads; ++seed) {
    Workload w = frozen_workload(seed);
    set_dtype(w, DType::bf16);
    const Plan plan = random_plan(w, seed);
    const int64_t checkpoint = w.checkpoint_bytes(0);
    int64_t trained = 0;
    for (RecordWork& record : w.records) trained += record.low = record.trained;
    EXPECT_EQ(plane_bytes(w, plan), 2 * w.all_elements() + 10 * trained);
    EXPECT_EQ(w.checkpoint_bytes(0), checkpoint) << "a checkpoint holds the master of every tensor";
  }
}

TEST(MemoryNeed, ClippingInBfloat16TakesFourteenHostBytesAParameter) {
  Workload w = some_workload(7);
  set_dtype(w, DType::bf16);
  w.clip = true;
  const MemoryNeed need = memory_need(w, planned(w, kPlenty));
  EXPECT_LE(need.host_bytes(), 14 * w.all_elements() + need.bytes_of(ResourceKind::staged_rows) +
                                   need.bytes_of(ResourceKind::staged_inputs) +
                                   need.bytes_of(ResourceKind::host_report) +
                                   need.bytes_of(ResourceKind::host_squares));
}

TEST(PlanJson, RoundTripsAndHashesByContent) {
  const Workload w = some_workload(1);
  std::set<std::string> hashes, texts;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Plan plan = random_plan(w, seed);
    const nlohmann::json json = nlohmann::json::parse(plan_to_json(w, plan).dump());
    EXPECT_EQ(plan_from_json(w, json, "plan.json"), plan);
    EXPECT_EQ(plan_hash(w, plan_from_json(w, json, "plan.json")), plan_hash(w, plan));
    hashes.insert(plan_hash(w, plan));
    texts.insert(json.dump());
  }
  EXPECT_EQ(hashes.size(), texts.size());
  EXPECT_GT(texts.size(), 190u);
}

// Removes each key of an object, at any depth; gives it a wrong type; and adds an unknown key beside it.
void expect_every_field_is_read(const Workload& w, const nlohmann::json& whole,
                                const nlohmann::json::json_pointer& at) {
  const auto refused = [&](const nlohmann::json& broken, const std::string& key) {
    expect_error(ExitCode::bad_config, {"plan.json", key}, [&] { plan_from_json(w, broken, "plan.json"); });
  };
  for (const auto& [key, value] : whole.at(at).items()) {
    nlohmann::json broken = whole;
    broken.at(at).erase(key);
    refused(broken, key);
    broken = whole;
    broken.at(at)[key] = "tape";
    refused(broken, key);
  }
  nlohmann::json more = whole;
  more.at(at)["tapes"] = 2;
  refused(more, "has the unknown key \"tapes\"");
}

TEST(PlanJson, RefusesEveryMissingMistypedOrUnknownField) {
  const Workload w = some_workload(1);
  const nlohmann::json whole = plan_to_json(w, random_plan(w, 4));
  for (const char* at : {"", "/rings", "/records/1", "/phases/1"})
    expect_every_field_is_read(w, whole, nlohmann::json::json_pointer(at));
}

TEST(RandomPlan, IsValidForEveryWorkloadAndSeed) {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const Workload w = seed % 3 ? some_workload(seed % kWorkloads) : frozen_workload(seed);
    const Plan plan = random_plan(w, seed);
    EXPECT_NO_THROW(check_plan(w, plan)) << seed;
    EXPECT_EQ(plan, random_plan(w, seed));
  }
}

TEST(RandomPlan, VariesEveryFieldOfAPlan) {
  Workload w = six_blocks();
  std::map<std::string, std::set<std::string>> seen;
  for (const bool clip : {true, false}) {
    w.clip = clip;
    for (uint64_t seed = 0; seed < 300; ++seed) {
      const nlohmann::json plan = plan_to_json(w, random_plan(w, seed));
      for (const char* list : {"records", "phases"}) {
        for (const nlohmann::json& item : plan.at(list)) {
          for (const auto& [key, value] : item.items()) seen[list + ("." + key)].insert(value.dump());
        }
      }
      for (const auto& [key, value] : plan.at("rings").items()) seen[key].insert(value.dump());
      for (const char* key : {"sweeps", "input_every", "serial"}) seen[key].insert(plan.at(key).dump());
    }
  }
  EXPECT_EQ(seen.size(), 5u + 3u + 12u + 3u);
  for (const char* ring : {"small_slots", "packed_slots"}) {  // slot_rings_test.cc, pipeline/packed_test.cc
    EXPECT_EQ(seen[ring], std::set<std::string>{"0"});
    seen.erase(ring);
  }
  for (const auto& [key, values] : seen) EXPECT_GE(values.size(), 2u) << key;
  for (const char* key : {"records.state", "records.moments", "records.gradient", "phases.outputs", "phases.input"})
    EXPECT_EQ(seen[key].size(), 3u) << key;
  EXPECT_EQ(seen["phases.keep"].size(), w.phase(1).levels.size());
  EXPECT_EQ(seen["weight_slots"].size(), 6u);
  EXPECT_EQ(seen["host_gradients"].size(), 7u);
  EXPECT_EQ(seen["sweeps"].size(), 8u);  // every way to write 4 as a sum
}

TEST(CheckPlan, NamesTheFieldThatIsWrong) {
  Workload w = six_blocks();
  w.clip = true;
  const Plan good = planned(w, kPlenty);
  const auto refused = [&](const std::string& part, auto&& change) {
    Plan plan = good;
    change(plan);
    expect_error(ExitCode::bad_config, {part}, [&] { check_plan(w, plan); });
  };
  refused("weight_slots", [](Plan& p) { p.rings.weight_slots = 0; });
  refused("weight_slots", [](Plan& p) { p.rings.weight_slots = 7; });
  refused("7 records", [](Plan& p) { p.records.pop_back(); });
  refused("7 blocks", [](Plan& p) { p.phases.push_back({}); });
  refused("the head must keep nothing", [](Plan& p) { p.phases.back().keep = Keep{2}; });
  refused("the embedding must keep nothing", [](Plan& p) { p.phases.front().input = Tier::host; });
  refused("input_every is 0", [](Plan& p) { p.input_every = 0; });
  refused("disk", [](Plan& p) { p.phase(3).input = Tier::disk; });
  refused("input_slots", [](Plan& p) { p.rings.input_slots = 1; });
  refused("input_slots", [](Plan& p) { p.rings.input_slots = int64_t{1} << 60; });
  refused("gradients_out", [](Plan& p) { p.rings.gradients_out = 0; });
  refused("gradients_out", [](Plan& p) { p.rings.gradients_out = int64_t{1} << 60; });
  refused("gradient_slabs", [](Plan& p) { p.rings.gradient_slabs = 1; });
  refused("host_gradients is 5", [](Plan& p) { p.rings.host_gradients = 5; });
  refused("visit_slots is 7", [](Plan& p) { p.rings.visit_slots = 7; });
  refused("layer 2's state is on the device", [](Plan& p) { p.record(2).updated_by = UpdatedBy::host; });
  refused("layer 2's moments", [](Plan& p) { p.record(2).moments = Tier::host; });
  refused("layer 0's weights", [](Plan& p) { p.record(0) = {.weights = Tier::hbm}; });
  refused("'outputs' is \"disk\" for block 3, which keeps attention: only outputs may", [&](Plan& p) {
    p.phase(3).keep = level_named(w, 3, "attention");
    p.phase(3).outputs = Tier::disk;
  });
  refused("block 3 keeps level 5, expected 0 to 4", [](Plan& p) { p.phase(3).keep = Keep{5}; });
  const auto keep_on = [&](Plan& p, Tier tier) {
    p.phase(3).keep = level_named(w, 3, "outputs");
    p.phase(3).outputs = tier;
    p.rings.output_slots = 2;
  };
  refused("output_slots is 1, expected 2 to 9", [&](Plan& p) {
    keep_on(p, Tier::host);
    p.rings.output_slots = 1;
  });
  refused("output_slots is 10", [&](Plan& p) {
    keep_on(p, Tier::host);
    p.rings.output_slots = 10;
  });
  refused("output_slots is 2, expected 0", [](Plan& p) { p.rings.output_slots = 2; });
  refused("activation_slabs is 0, expected 1 to 6", [&](Plan& p) { keep_on(p, Tier::disk); });
  Plan away = good;
  keep_on(away, Tier::host);
  EXPECT_NO_THROW(check_plan(w, away));
  refused("sweep", [](Plan& p) { p.sweeps = {4, 0}; });
  refused("3 micro-batches", [](Plan& p) { p.sweeps = {1, 2}; });
  w.records[3].trained = 0;
  refused("layer 3's state may be copied", [](Plan& p) { p.record(3) = {.updated_by = UpdatedBy::device}; });
}

TEST(Estimate, MicroBatchesTakenTogetherCostWhatTheyCostApart) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Workload w = seed % 3 ? some_workload(seed % kWorkloads) : frozen_workload(seed);
    const Plan plan = random_plan(w, seed);
    const double apart = estimate(w, plan, kMachine, w.micro_batches).step_s;
    EXPECT_NEAR(estimate(w, plan, kMachine).step_s, apart, 1e-3 * apart) << plan_to_json(w, plan);
  }
}

TEST(Estimate, NoStepIsShorterThanItsLeast) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Workload w = seed % 3 ? some_workload(seed % kWorkloads) : frozen_workload(seed);
    const Plan plan = random_plan(w, seed);
    EXPECT_LE(least_seconds(w, plan, kMachine), estimate(w, plan, kMachine).step_s * (1 + 1e-12))
        << plan_to_json(w, plan);
  }
}

TEST(Estimate, ForwardAndBackwardAreAllTheComputeThatGrowsWithTokens) {
  MachineProfile machine;
  machine.hbm_bytes_per_s = 1e30;  // so that updates and rounding on the device take no time
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Workload w = seed % 3 ? some_workload(seed % kWorkloads) : frozen_workload(seed);
    const Plan plan = random_plan(w, seed);
    const StepParts parts = step_parts(w, plan, machine);
    const double compute_s = estimate(w, plan, machine).compute_s;
    EXPECT_NEAR(parts.forward_s + parts.backward_s, compute_s, 1e-9 * compute_s) << plan_to_json(w, plan);
  }
}

TEST(Estimate, WhatAStepMovesByPartIsWithinWhatItsLanesMove) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Workload w = seed % 3 ? some_workload(seed % kWorkloads) : frozen_workload(seed);
    const Plan plan = random_plan(w, seed);
    SCOPED_TRACE(plan_to_json(w, plan).dump());
    const StepParts parts = step_parts(w, plan, kMachine);
    const Estimate e = estimate(w, plan, kMachine);
    constexpr double kUp = 1 + 1e-9;
    EXPECT_LE(parts.gradients_s + parts.collected_s, e.d2h_s * kUp);
    EXPECT_LE(parts.update_s, e.update_s * kUp);
    const double h2d = kMachine.h2d_bytes_per_s;
    EXPECT_LE(parts.weights_s, static_cast<double>(fetched_weight_bytes(w, plan)) / h2d * kUp);
    // every fetched record is fetched once, and those that stream at most once per sweep
    int64_t once = 0, streamed = 0;
    for (int64_t r = 1; r < w.head_record(); ++r) {
      if (plan.copied(r) || plan.streams(r)) once += w.weight_bytes(r);
      if (plan.streams(r)) streamed += w.weight_bytes(r);
    }
    EXPECT_GE(parts.weights_s * kUp, static_cast<double>(once) / h2d);
    EXPECT_LE(parts.weights_s, static_cast<double>(once + (std::ssize(plan.sweeps) - 1) * streamed) / h2d * kUp);
  }
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST(Planner, EightyBlocksAndSixtyFourMicroBatchesArePlannedWithinASecond) {
  Workload w = some_workload(0);
  w.micro_batches = 64;
  w.micro_tokens = 8192;
  constexpr int64_t kHidden = 3584, kVocab = 152064;
  const int64_t table = kVocab * kHidden;
  make_dense(w, {.hidden = kHidden,
                 .vocab = kVocab,
                 .blocks = 80,
                 .block_elements = 233000000,
                 .head_elements = table + 128,
                 .head_flops = 2.0 * static_cast<double>(table)});
  for (const int64_t gpu : {80 * kGiB, 139 * kGiB, kPlenty}) {
    const std::clock_t start = std::clock();  // CPU time of this process, so that other processes do not count
    planned(w, gpu);
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 2.0) << gpu;  // on two cores
  }
}
#endif

TEST(Estimate, SerialIsNeverFasterAndMoreSweepsNeverFetchLess) {
  const MachineProfile machine;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Workload w = some_workload(seed % kWorkloads);
    Plan plan = random_plan(w, seed);
    plan.serial = false;
    const double overlapped = estimate(w, plan, machine).step_s;
    plan.serial = true;
    EXPECT_GE(estimate(w, plan, machine).step_s, overlapped);
    Plan once = plan;
    once.sweeps = {w.micro_batches};
    EXPECT_LE(fetched_weight_bytes(w, once), fetched_weight_bytes(w, plan));
  }
}

// Compared with walking all of them.
TEST(Estimate, OfManySweepsAndMicroBatchesIsThatOfTheWholeWalk) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Workload w = some_workload(seed);
    w.micro_batches = 400;
    for (const int64_t sweeps : {1, 100, 400}) {
      Plan plan = make_plan(some_workload(seed), {.gpu_bytes = int64_t{1} << 40, .host_bytes = int64_t{1} << 40},
                            kMachine, nullptr);
      plan.sweeps.assign(static_cast<size_t>(sweeps), w.micro_batches / sweeps);
      const Estimate quick = estimate(w, plan, kMachine), whole = estimate(w, plan, kMachine, w.micro_batches);
      EXPECT_NEAR(quick.step_s, whole.step_s, 0.01 * whole.step_s) << seed << " " << sweeps;
      EXPECT_NEAR(quick.compute_s, whole.compute_s, 0.002 * whole.compute_s) << seed << " " << sweeps;
      EXPECT_NEAR(quick.h2d_s, whole.h2d_s, 0.01 * whole.h2d_s) << seed << " " << sweeps;
    }
  }
}

}  // namespace megatrain
