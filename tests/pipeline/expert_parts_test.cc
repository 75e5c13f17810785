// MoE layers in parts: attention and router, then one group of experts after the other.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/units.h"
#include "megatrain/io/json.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/describe.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/verify.h"
#include "tests/support/fixtures.h"
#include "megatrain/train/expert_groups.h"
#include "tests/pipeline/tiny.h"
#include "tests/support/plan_changes.h"

namespace megatrain::tiny {

TEST(ExpertParts, ARecordIsNamedByTheExpertsItHolds) {
  Tiny grouped({.layers = 3, .experts = 8, .experts_per_record = 3});
  Workload w = grouped.workload();
  w.experts_per_record = 0;  // what was requested; the records themselves hold the actual numbers
  std::vector<std::string> names;
  for (const int64_t record : w.phase(1).records) names.push_back(describe_record(w, record));
  EXPECT_EQ(names, (std::vector<std::string>{"layer 1", "experts 1 to 3 of layer 1", "experts 4 to 6 of layer 1",
                                             "experts 7 to 8 of layer 1"}));
}

TEST(ExpertParts, NeedOneRecordAtATime) {
  // each expert gets a whole number of tokens, so that costs are not rounded
  Tiny whole({.layers = 3, .seq_len = 12, .experts = 8}),
      grouped({.layers = 3, .seq_len = 12, .experts = 8, .experts_per_record = 3});
  EXPECT_EQ(whole.workload().phase(1).records_of(0).size(), 2u);
  const Workload& w = grouped.workload();
  ASSERT_EQ(w.phase(1).part_count(), 4);  // attention and router, then 3, 3 and 2 experts
  EXPECT_EQ(w.phase(1).records_of(0), std::vector<int64_t>{1});
  EXPECT_EQ(w.phase(1).records_of(3), std::vector<int64_t>{4});
  EXPECT_EQ(w.phase(2).part_count(), 1);  // dense
  EXPECT_EQ(w.record(2).elements, w.record(3).elements);
  EXPECT_LT(w.record(4).elements, w.record(3).elements);

  // together, the parts cost as much as the whole phase
  const PhaseWork &one = whole.workload().phase(1), &several = w.phase(1);
  double forward = 0, backward = 0;
  for (const PartWork& part : several.parts) {
    forward += part.forward_flops;
    backward += part.backward_flops;
  }
  EXPECT_NEAR(forward, one.forward_flops, 1e-6 * one.forward_flops);
  EXPECT_NEAR(backward, one.backward_flops, 1e-6 * one.backward_flops);
  EXPECT_EQ(one.between_parts_bytes, 0);
  EXPECT_GT(several.between_parts_bytes, 0);
  EXPECT_LT(w.workspace_bytes, whole.workload().workspace_bytes);
}

TEST(ExpertParts, AreNamedByTheirLayerAndExperts) {
  Tiny tiny({.layers = 3, .experts = 8, .experts_per_record = 3});
  const Workload& w = tiny.workload();
  const std::vector<std::string> names = {"layer 0",
                                          "layer 1",  // the embedding, attention and router
                                          "experts 1 to 3 of layer 1",
                                          "experts 4 to 6 of layer 1",
                                          "experts 7 to 8 of layer 1",
                                          "layer 2",  // dense
                                          "layer 3",
                                          "experts 1 to 3 of layer 3",
                                          "experts 4 to 6 of layer 3",
                                          "experts 7 to 8 of layer 3",
                                          "layer 4"};  // the head
  ASSERT_EQ(w.record_count(), std::ssize(names));
  for (int64_t record = 0; record < w.record_count(); ++record)
    EXPECT_EQ(describe_record(w, record), names[static_cast<size_t>(record)]);
  Tiny whole({.layers = 3, .experts = 8}), single({.layers = 3, .experts = 8, .experts_per_record = 1});
  EXPECT_EQ(describe_record(whole.workload(), 2), "experts of layer 1");
  EXPECT_EQ(describe_record(single.workload(), 9), "expert 8 of layer 1");

  // traces use the same names
  const auto trainer = tiny.trainer(tiny.default_plan());
  Trace trace;
  for (int64_t step = 1; step <= 3; ++step) {
    trainer->trace_into(step == 3 ? &trace : nullptr);
    tiny.step(*trainer, step);
  }
  trainer->drain();
  std::set<std::string> seen;
  const nlohmann::json read = nlohmann::json::parse(trace.json());
  for (const nlohmann::json& event : read.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int64_t layer = event.at("args").at("layer");
    EXPECT_LE(layer, w.head_phase());
    const std::string experts = event.at("args").value("experts", "");
    if (layer >= 0) seen.insert(fmt::format("{}layer {}", experts.empty() ? "" : experts + " of ", layer));
    const std::string end = fmt::format(" {}{}{}", layer, experts.empty() ? "" : ", ", experts);
    EXPECT_TRUE(layer < 0 || event.at("name").get<std::string>().ends_with(end)) << event;
  }
  EXPECT_EQ(seen, std::set<std::string>(names.begin(), names.end()));

  Plan plan = tiny.default_plan();
  plan.records.pop_back();
  expect_error(ExitCode::bad_config, {"10 records, the model has 11"}, [&] { check_plan(w, plan); });
  plan = tiny.default_plan();
  live_on_host(w, plan);
  plan.record(8).state = Tier::hbm;
  expect_error(ExitCode::bad_config, {"experts 4 to 6 of layer 3's state is on the device"},
               [&] { check_plan(w, plan); });
}

TEST(ExpertParts, TakeTheMemoryThatThePlanSaid) {
  Tiny tiny({.layers = 3, .experts = 8, .experts_per_record = 3});
  const Workload& w = tiny.workload();
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Plan plan = random_plan(w, seed);
    const auto violations = verify(build_schedule(w, plan, StepMode::train));
    ASSERT_TRUE(violations.empty()) << violations.front();
    ASSERT_TRUE(verify(build_schedule(w, plan, StepMode::evaluate)).empty());
    const auto trainer = tiny.trainer(plan);
    const MemoryNeed need = memory_need(w, plan);
    const int64_t widest = *std::max_element(plan.sweeps.begin(), plan.sweeps.end());
    EXPECT_EQ(need.bytes_of(ResourceKind::between_parts), widest * round_up(w.phase(1).between_parts_bytes, 256));
    EXPECT_EQ(tiny.machine().device->ledger().bytes(), need.hbm_bytes());
    EXPECT_EQ(tiny.machine().device->host_ledger().bytes(), need.host_bytes());
  }
}

// A layer's experts are a single record as long as they take at most 1/24 of the device.
TEST(ExpertParts, AreAsManyAsTheDeviceWants) {
  const ModelConfig model = model_config({.layers = 3, .experts = 8});
  const int64_t layer = largest_layer_record(model) * 2;
  EXPECT_EQ(experts_in_a_record(model, DType::bf16, 24 * layer), 0);
  EXPECT_EQ(experts_in_a_record(model, DType::f32, 24 * layer), 4);
  EXPECT_EQ(experts_in_a_record(model, DType::bf16, 24 * layer - 24), 4);
  EXPECT_EQ(experts_in_a_record(model, DType::bf16, 8 * layer), 3);
  EXPECT_EQ(experts_in_a_record(model, DType::bf16, layer), 1);
  EXPECT_EQ(experts_in_a_record(model, DType::bf16, 0), 1);
  EXPECT_EQ(experts_in_a_record(model_config({}), DType::bf16, 0), 0);

  TrainConfig config = train_config({.layers = 3, .experts = 8}, "cpu");
  config.memory.gpu_bytes = 12 * layer;
  const std::vector<int64_t> sizes = group_sizes(model, DType::bf16, 12 * layer);
  EXPECT_EQ(sizes, (std::vector<int64_t>{4, 1, 1}));
  // the estimates for this machine decide between the first two sizes
  EXPECT_GE(std::ranges::count(sizes, Session(config, {.config = model}).workload().experts_per_record), 1);
}

// The smallest records need the least memory, so the memory that an error asks for is then enough.
TEST(ExpertParts, ARefusalIsThatOfTheSmallestRecords) {
  TrainConfig config = train_config({.layers = 3, .experts = 8}, "cpu");
  const ModelConfig model = model_config({.layers = 3, .experts = 8});
  config.memory.gpu_bytes = 1;
  Session session(config, {.config = model});
  EXPECT_EQ(session.workload().experts_per_record, 1);
  std::string said;
  try {
    session.plan();
  } catch (const Error& error) {
    said = error.what();
  }
  const std::string key = "Raise memory.gpu to ";
  ASSERT_NE(said.find(key), std::string::npos) << said;
  said.erase(0, said.find(key) + key.size());
  const std::string amount = said.substr(0, said.find(" if "));
  config.memory.gpu_bytes = parse_bytes(amount);
  EXPECT_NO_THROW(Session(config, {.config = model}).plan()) << amount;
}

TEST(ExpertParts, OfAPlanAreThoseOfTheRun) {
  Tiny grouped({.layers = 3, .experts = 8, .experts_per_record = 4}), whole({.layers = 3, .experts = 8});
  const Plan plan = grouped.default_plan();
  EXPECT_EQ(plan.experts_per_record, 4);
  EXPECT_EQ(plan_from_json(grouped.workload(), plan_to_json(grouped.workload(), plan), "plan.json"), plan);
  expect_error(ExitCode::bad_config, {"4 experts"}, [&] { check_plan(whole.workload(), plan); });

  // a run that names the plan divides its records accordingly
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "expert_parts_plan.json";
  std::ofstream(file) << plan_to_json(grouped.workload(), plan).dump();
  TrainConfig config = train_config({.layers = 3, .experts = 8}, "cpu");
  config.plan = file.string();
  Session session(config, {.config = model_config({.layers = 3, .experts = 8})});
  EXPECT_EQ(session.workload().experts_per_record, 4);
  EXPECT_EQ(session.plan(), plan);

  for (const int64_t wrong : {-3, 9}) {
    nlohmann::json other = plan_to_json(grouped.workload(), plan);
    other["experts_per_record"] = wrong;
    std::ofstream(file) << other.dump();
    expect_error(ExitCode::bad_config, {file.string(), "experts_per_record", "0 to 8"},
                 [&] { Session(config, {.config = model_config({.layers = 3, .experts = 8})}).workload(); });
  }
  std::filesystem::remove(file);
}

}  // namespace megatrain::tiny
