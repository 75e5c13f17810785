#include "megatrain/report/report_data.h"

#include <fmt/format.h>

#include "megatrain/report/report_page.h"
#include "tests/support/fixtures.h"
#include "tests/support/places.h"

namespace megatrain {

namespace {

constexpr const char* kStep =
    R"({"step":1,"loss":2.5,"grad_norm":1,"lr":1,"seconds":1,"tokens":8,"trained_tokens":8,"tokens_per_s":8,)"
    R"("bound_by":"compute","hbm_peak":1,"host_peak":1})"
    "\n";

std::string all_of(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) text += sentence + "\n";
  return text;
}

}  // namespace

TEST(ReportData, WarnsOfADivergenceAndOfARisingEvaluationLossOnThePage) {
  const TemporaryDirectory run;
  write_bytes(run / "config.resolved.yaml", "steps: 4\n");
  write_bytes(run / "model_config.json",
              read_bytes(in_repository("tests/parity/goldens/llama_linear/model/config.json")));
  std::ofstream steps(run / "metrics.jsonl"), evaluations(run / "eval.jsonl");
  for (const auto& [step, loss] : {std::pair{1, 8.3}, {2, 8.1}, {3, 257807.0}})
    steps << fmt::format(
        R"({{"step":{},"loss":{},"grad_norm":1,"lr":1,"seconds":1,"tokens":8,"trained_tokens":8,"tokens_per_s":8,)"
        R"("bound_by":"compute","hbm_peak":1,"host_peak":1}})"
        "\n",
        step, loss);
  for (const auto& [step, loss] : {std::pair{1, 8.0}, {2, 8.2}, {3, 8.4}})
    evaluations << fmt::format("{{\"step\":{},\"loss\":{}}}\n", step, loss);
  steps.close();
  evaluations.close();
  const ReportData data = read_report(run.path());
  ASSERT_EQ(data.warnings.size(), 2u) << all_of(data.warnings);
  EXPECT_EQ(data.warnings[0].find("the loss of step 3 is 2.578e+05, far above"), 0u) << data.warnings[0];
  EXPECT_EQ(data.warnings[1].find("the evaluation loss rises: 8.0000 at step 1"), 0u) << data.warnings[1];
  const std::string page = report_page(data);
  for (const std::string& warning : data.warnings) EXPECT_NE(page.find(warning), std::string::npos) << warning;
}

TEST(ReportData, DrawsWhatCanBeReadAndSaysWhatIsDamaged) {
  const std::pair<const char*, const char*> kDamaged[] = {
      {"metrics.jsonl", "{\"step\": 2,\n"},
      {"metrics.jsonl", "{\"step\": 2}\n"},
      {"metrics.jsonl", "\xff\xfe\n"},
      {"eval.jsonl", "[]\n"},
      {"eval.jsonl", "{\"step\": 1}\n"},
      {"samples.jsonl", "{\"step\": 1, \"prompt\": 3}\n"},
      {"lanes.json", "["},
      {"lanes.json", "{}"},
      {"lanes.json", "{\"traceEvents\": 3}"},
      {"lanes.json", "{\"traceEvents\": [{\"ph\": \"X\"}]}"},
      {"memory.json", "[1]"},
      {"memory.json", "{}"},
      {"memory.json", "{\"hbm\": {\"weights\": \"much\"}}"},
      {"model_config.json", "{"},
      {"model_config.json", "{}"},
      {"identity.json", ""},
  };
  for (const auto& [name, text] : kDamaged) {
    const TemporaryDirectory run;
    write_bytes(run / "config.resolved.yaml", "steps: 4\n");
    write_bytes(run / "metrics.jsonl", kStep);
    std::ofstream(run / name, std::ios::app) << text;
    const ReportData data = read_report(run.path());
    EXPECT_EQ(data.history.steps.size(), 1u);
    ASSERT_EQ(data.damaged.size(), 1u) << name << ": " << text;
    const std::string& told = data.damaged.front();
    EXPECT_EQ(told.find(name), 0u) << told;
    for (const char* bad : {"json.exception", "download", "remove it"})
      EXPECT_EQ(told.find(bad), std::string::npos) << told;
    if (std::string(name) == "metrics.jsonl") {
      EXPECT_EQ(told.find("metrics.jsonl:2 "), 0u) << told;
      EXPECT_EQ(told.find("at line"), std::string::npos) << told;
    }
    const std::string page = report_page(data);
    EXPECT_NE(page.find(name), std::string::npos);
    EXPECT_EQ(page.find(run.path()), std::string::npos) << "a page may be for others";
  }
}

TEST(ReportData, SaysWhichEvaluationsAndSamplesAreMissingInTheMiddle) {
  const TemporaryDirectory run;
  write_bytes(run / "config.resolved.yaml",
              "steps: 10\ndata.train: a\ndata.eval: b\neval.every: 0.1\nsample.every: 1\nsample.prompts: [a]\n");
  write_bytes(run / "metrics.jsonl", kStep);
  std::ofstream evaluations(run / "eval.jsonl"), samples(run / "samples.jsonl");
  for (const int step : {1, 2, 4, 5}) {
    evaluations << "{\"step\":" << step << ",\"loss\":2}\n" << std::flush;
    samples << "{\"step\":" << step << ",\"prompt\":\"a\",\"text\":\"b\"}\n" << std::flush;
  }
  const ReportData data = read_report(run.path());
  ASSERT_EQ(data.damaged.size(), 2u) << all_of(data.damaged);
  EXPECT_EQ(data.damaged[0].find("eval.jsonl has no record of step 3"), 0u) << data.damaged[0];
  EXPECT_EQ(data.damaged[1].find("samples.jsonl has no record of step 3"), 0u) << data.damaged[1];
}

TEST(ReportData, OfManyDamagedLinesTellsTheFirstAndHowManyThereAre) {
  const TemporaryDirectory run;
  write_bytes(run / "config.resolved.yaml", "steps: 4\n");
  std::ofstream metrics(run / "metrics.jsonl");
  for (int i = 0; i < 1000; ++i) metrics << "x\n";
  metrics << kStep << std::flush;
  const ReportData data = read_report(run.path());
  EXPECT_EQ(data.history.steps.size(), 1u);
  EXPECT_EQ(data.damaged.size(), 9u);
  EXPECT_NE(all_of(data.damaged).find("992 more"), std::string::npos) << all_of(data.damaged);
}

TEST(ReportData, AFileThatCannotBeReadIsNeitherEmptyNorDamaged) {
  for (const char* name : {"metrics.jsonl", "eval.jsonl", "samples.jsonl", "lanes.json", "memory.json", "identity.json",
                           "model_config.json", "config.resolved.yaml"}) {
    for (const bool loop : {false, true}) {  // root can read everything else
      const TemporaryDirectory run;
      write_bytes(run / "config.resolved.yaml", "steps: 4\n");
      std::filesystem::remove(run / name);
      if (loop) std::filesystem::create_symlink(name, run / name);
      if (!loop) std::filesystem::create_directory(run / name);
      expect_error(ExitCode::io, {name}, [&] { read_report(run.path()); });
    }
  }
}

}  // namespace megatrain
