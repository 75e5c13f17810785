// Non-finite numbers are refused by name before they are saved.
#include "tests/pipeline/non_finite_check.h"

namespace megatrain::tiny {

namespace {

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::non_finite) << error.what();
    return error.what();
  }
  return "";
}

}  // namespace

TEST(NonFinite, AnInfiniteMomentIsNamedByStepLayerAndTensorWhereverItIsUpdated) {
  expect_infinite_moment_is_named("cpu", {});
  expect_infinite_moment_is_named("cpu", {.clip = false, .precision = "fp32"});
}

TEST(NonFinite, TheNextStepFindsAnUpdateThatWasNotFinite) { expect_next_step_finds_it("cpu"); }

TEST(NonFinite, AGradientIsNamedByTheLayerWhereItStoppedBeingFinite) {
  Tiny tiny({});
  const auto trainer = tiny.trainer(tiny.default_plan());
  LayerRecord& record = trainer->records()[3];
  const float infinite = INFINITY;
  record.write_master(record.layout().tensors[0], 0, 1, &infinite);
  const std::string said = message_of([&] { tiny.step(*trainer, 1); });
  EXPECT_NE(said.find("step 1: loss is nan"), std::string::npos) << said;
  EXPECT_NE(said.find("in backward from the head on"), std::string::npos) << said;
  // The reported name if the last part of these records' gradients is not finite.
  const auto bad_in = [](const Workload& w, const std::set<int64_t>& records) {
    std::vector<double> squares;
    for (int64_t r = 0; r < w.record_count(); ++r) {
      squares.resize(squares.size() + static_cast<size_t>(w.record(r).norm_parts), 1);
      if (records.contains(r)) squares.back() = r % 2 ? NAN : INFINITY;
    }
    return first_bad_gradient(w, squares);
  };
  EXPECT_EQ(bad_in(tiny.workload(), {0, 1}), "layer 0");
  EXPECT_EQ(bad_in(tiny.workload(), {}), "");
  Tiny experts({.layers = 3, .experts = 8, .experts_per_record = 3});  // of 4 records, 1 and 4
  EXPECT_EQ(bad_in(experts.workload(), {1}), "layer 0");
  EXPECT_EQ(bad_in(experts.workload(), {3}), "layer 0 (its experts)");
  EXPECT_EQ(bad_in(experts.workload(), {3, 5}), "layer 1");
}

// A token with a huge embedding makes the loss of its documents non-finite: those are named, the others are not.
TEST(NonFinite, ALossIsNamedByTheDocumentsItComesFrom) {
  const Shape shape{.precision = "fp32"};
  Tiny tiny(shape);
  const auto trainer = tiny.trainer(tiny.default_plan());
  const Batch batch = make_batch(shape, 0);
  const int32_t token = batch.micro_batches[1].tokens[0];
  const float infinite = INFINITY;
  LayerRecord& embedding = trainer->records()[0];
  embedding.write_master(embedding.layout().tensors[0], token * tiny.workload().record(0).row_width, 1, &infinite);
  std::vector<std::pair<int64_t, int64_t>> expected, found;
  for (int64_t m = 0; m < std::ssize(batch.micro_batches); ++m) {
    const MicroBatch& micro = batch.micro_batches[static_cast<size_t>(m)];
    for (size_t d = 0; d + 1 < micro.document_begin.size(); ++d) {
      bool seen = false, trained = false;
      for (int32_t t = micro.document_begin[d]; t < micro.document_begin[d + 1]; ++t) {
        seen |= micro.tokens[static_cast<size_t>(t)] == token;
        trained |= seen && micro.labels[static_cast<size_t>(t)] != kIgnoreLabel;
      }
      if (trained) expected.emplace_back(m, micro.document_begin[d]);
    }
  }
  ASSERT_FALSE(expected.empty());
  const auto note = [&](const NonFiniteLoss& error) {
    found.clear();
    for (const DocumentAt& document : error.documents()) found.emplace_back(document.micro_batch, document.token);
  };
  EXPECT_THROW(
      try { trainer->evaluate(batch); } catch (const NonFiniteLoss& error) {
        note(error);
        throw;
      },
      NonFiniteLoss);
  EXPECT_EQ(found, expected) << "of an evaluation";
  EXPECT_THROW(
      try { tiny.step(*trainer, 1); } catch (const NonFiniteLoss& error) {
        note(error);
        throw;
      },
      NonFiniteLoss);
  EXPECT_EQ(found, expected) << "of a step";
}

}  // namespace megatrain::tiny
