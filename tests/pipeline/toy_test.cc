// The seam for layers: a model with layers of two phases over two records of unlike sizes, and another width between
// them, trains under every plan to the same bits.
#include <gtest/gtest.h>

#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/planner.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/verify.h"
#include "megatrain/train/model_work.h"
#include "tests/model/toy_layer.h"
#include "tests/pipeline/tiny.h"

namespace megatrain::tiny {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kToyPlans = 6;
#else
constexpr int kToyPlans = 60;
#endif

class ToyModel {
 public:
  explicit ToyModel(const Shape& shape) : shape_(shape), config_(model_config(shape)) {
    machine_.device = make_cpu_device();
    machine_.ops = make_cpu_ops({.threads = 2});
    machine_.disk.place.directory = std::filesystem::temp_directory_path().string();
    const int64_t sequences = shape.sequences / shape.micro_batches;
    model_shape_ = {.dtype = shape.precision == "fp32" ? DType::f32 : DType::bf16,
                    .tokens = sequences * shape.seq_len,
                    .mlp_chunk = 0,
                    .head_chunk = 0,
                    .positions = shape.seq_len};
    ops_ = {.dtype = model_shape_.dtype,
            .attention = {.tokens = model_shape_.tokens,
                          .heads = config_.heads,
                          .kv_heads = config_.kv_heads,
                          .head_dim = config_.head_dim},
            .hidden = config_.hidden,
            .ff = config_.ff,
            .max_documents = model_shape_.tokens,
            .longest_document = shape.seq_len};
    workload_ = model_work(toy::make_model(config_, model_shape_),
                           {.dtype = model_shape_.dtype, .sequences = sequences, .seq_len = shape.seq_len});
    workload_.micro_batches = shape.micro_batches;
    workload_.clip = shape.clip;
    workload_.scratch_bytes = machine_.ops->scratch_bytes(ops_);
    workload_.input_bytes = input_bytes(shape.micro_batches, workload_.micro_tokens, workload_.touched_rows());
  }

  const Workload& workload() const { return workload_; }
  const Device& device() const { return *machine_.device; }

  std::unique_ptr<Trainer> trainer(const Plan& plan) {
    auto trainer =
        std::make_unique<Trainer>(machine_, toy::make_model(config_, model_shape_), ops_, workload_, plan, 2);
    init_weights(config_, 7, trainer->records(), 2);
    return trainer;
  }

  // The state's hash after `steps` steps, and the last loss.
  std::pair<std::string, double> train(const Plan& plan, int64_t steps) {
    const auto trained = trainer(plan);
    double loss = 0;
    for (int64_t s = 1; s <= steps; ++s) {
      const AdamWStep adamw{.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .t = s};
      loss = trained->step(make_batch(shape_, 0), {.adamw = adamw, .clip = shape_.clip ? 0.5 : 0}).loss;
    }
    trained->drain();
    return {hash_state(trained->records(), steps).state, loss};
  }

 private:
  Shape shape_;
  ModelConfig config_;
  Machine machine_;
  ModelShape model_shape_;
  OpsShape ops_;
  Workload workload_;
};

class ToyLayers : public ::testing::TestWithParam<Shape> {};

TEST_P(ToyLayers, TrainUnderEveryRandomPlanToOneStateHash) {
  ToyModel toy(GetParam());
  const Workload& w = toy.workload();
  ASSERT_GT(w.layer_phases(), GetParam().layers) << "some layers have two phases";
  ASSERT_NE(w.record(2).elements, w.record(3).elements) << "a toy layer's records are of unlike sizes";
  ASSERT_NE(w.phase(2).width, w.phase(3).width) << "the width changes between its phases";
  const auto [expected, loss] = toy.train(random_plan(w, 1000), 4);
  for (uint64_t seed = 0; seed < kToyPlans; ++seed) {
    const Plan plan = random_plan(w, seed);
    const auto violations = verify(build_schedule(w, plan, StepMode::train));
    ASSERT_TRUE(violations.empty()) << violations.front();
    ASSERT_EQ(toy.train(plan, 4).first, expected) << "plan " << seed << ": " << plan_to_json(plan).dump();
  }
  EXPECT_LT(toy.train(random_plan(w, 0), 12).second, loss) << "the loss of one batch falls";
}

TEST_P(ToyLayers, TakeTheMemoryThatThePlanSaid) {
  ToyModel toy(GetParam());
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Plan plan = random_plan(toy.workload(), seed);
    const auto trainer = toy.trainer(plan);
    const MemoryNeed need = memory_need(toy.workload(), plan);
    EXPECT_EQ(toy.device().ledger().bytes(), need.hbm_bytes()) << toy.device().ledger().table();
    EXPECT_EQ(toy.device().host_ledger().bytes(), need.host_bytes()) << toy.device().host_ledger().table();
  }
}

TEST_P(ToyLayers, ArePlannedFor) {
  ToyModel toy(GetParam());
  const Workload& w = toy.workload();
  const Plan roomy = make_plan(w, {.gpu_bytes = int64_t{1} << 40, .host_bytes = int64_t{1} << 40}, {}, nullptr);
  const int64_t most = memory_need(w, roomy).hbm_bytes();
  const std::string expected = toy.train(roomy, 3).first;
  int planned = 0;
  for (int64_t tenth = 3; tenth <= 10; ++tenth) {
    Plan plan;
    try {
      plan = make_plan(w, {.gpu_bytes = most * tenth / 10, .host_bytes = int64_t{1} << 40}, {}, nullptr);
    } catch (const Error&) {
      continue;
    }
    ++planned;
    EXPECT_NO_THROW(check_plan(w, plan));
    EXPECT_LE(memory_need(w, plan).hbm_bytes(), most * tenth / 10);
    EXPECT_EQ(toy.train(plan, 3).first, expected) << plan_to_json(plan).dump();
  }
  EXPECT_GE(planned, 3);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ToyLayers,
                         ::testing::Values(Shape{.layers = 4}, Shape{.layers = 5, .tied = true, .clip = false},
                                           Shape{.layers = 3, .micro_batches = 8, .precision = "fp32"}));

}  // namespace megatrain::tiny
