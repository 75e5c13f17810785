#include "megatrain/report/run_history.h"

#include <fstream>

#include <fmt/format.h>

#include "megatrain/io/json.h"
#include "tests/support/cpu_time.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

// In the form that metrics_json() writes.
std::string line_of(int64_t step) {
  std::string lanes;
  for (const char* lane : {"h2d", "compute", "d2h", "visit_in", "visit", "update", "gather", "collect", "disk_read"})
    lanes += fmt::format("{}\"{}\":{{\"busy_s\":{:.17g},\"wait_s\":{:.17g}}}", lanes.empty() ? "" : ",", lane,
                         1.0 / static_cast<double>(step + 3), 0.1);
  return fmt::format(
      "{{\"step\":{0},\"steps\":300,\"epoch\":{1:.17g},\"loss\":{1:.17g},\"grad_norm\":{2:.17g},\"lr\":1e-05,"
      "\"tokens\":8,\"trained_tokens\":7,\"seconds\":{2:.17g},\"paused_s\":0.25,\"tokens_per_s\":{1:.17g},"
      "\"bound_by\":\"compute\",\"stall\":{{\"seconds\":0.5,\"for\":\"x\"}},\"lanes\":{{{3}}},\"hbm_peak\":5,"
      "\"host_peak\":6}}",
      step, 10.0 / static_cast<double>(step), 3.0 / static_cast<double>(step), lanes);
}

}  // namespace

TEST(RunHistory, HoldsWhatTheParserReads) {
  const TemporaryDirectory run;
  std::ofstream out(run / "metrics.jsonl");
  for (int64_t step = 1; step <= 50; ++step) {
    nlohmann::json line = nlohmann::json::parse(line_of(step));
    if (step == 7) line["bound_by"] = "\xc3\xa9";  // only the full parser reads this
    if (step == 8) line.erase("paused_s");
    out << (step % 2 || step == 8 ? line.dump() : line_of(step)) << "\n";
  }
  out << "{\"step\":51,\"eval_loss\":2.5}\n" << line_of(52).substr(0, 200) << std::flush;
  const RunHistory history = read_history(run.path());
  ASSERT_EQ(history.steps.size(), 50u);
  EXPECT_TRUE(history.damaged.empty());
  EXPECT_EQ(history.planned_steps, 300);
  EXPECT_EQ(history.bound_by, "compute");
  EXPECT_EQ(history.evaluations.at(0).loss, 2.5);
  for (const RunStep& step : history.steps) {
    const nlohmann::json line = nlohmann::json::parse(line_of(step.step));
    EXPECT_EQ(step.loss, line.at("loss"));
    EXPECT_EQ(step.grad_norm, line.at("grad_norm"));
    EXPECT_EQ(step.lr, line.at("lr"));
    EXPECT_EQ(step.seconds, line.at("seconds"));
    EXPECT_EQ(step.tokens_per_s, line.at("tokens_per_s"));
    EXPECT_EQ(step.paused_s, step.step == 8 ? 0 : 0.25);
    EXPECT_EQ(step.tokens, 8);
    EXPECT_EQ(step.trained_tokens, 7);
    EXPECT_EQ(step.hbm_peak, 5);
    EXPECT_EQ(step.host_peak, 6);
  }
}

TEST(RunHistory, OfManyStepsTakesAFractionOfWhatATreeOfThemTakes) {
  constexpr int64_t kSteps = 20'000;
  const TemporaryDirectory run;
  std::vector<std::string> lines;
  std::ofstream out(run / "metrics.jsonl");
  for (int64_t step = 1; step <= kSteps; ++step) {
    lines.push_back(line_of(step));
    out << lines.back() << "\n";
  }
  out.flush();
  size_t members = 0;
  const double trees_s = cpu_seconds([&] {
    for (const std::string& line : lines) members += nlohmann::json::parse(line).size();
  });
  RunHistory history;
  const double read_s = cpu_seconds([&] { history = read_history(run.path()); });
  EXPECT_EQ(history.steps.size(), static_cast<size_t>(kSteps));
  EXPECT_GT(members, static_cast<size_t>(kSteps));
  EXPECT_LT(read_s, trees_s / 3);
}

}  // namespace megatrain
