// `megatrain bench` as scripts see it, on the CPU and a small model.
#include <algorithm>

#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

Words on_model(const Words& words) {
  Words all = {"bench"};
  all.insert(all.end(), words.begin(), words.end());
  for (const std::string& word :
       {golden("qwen3_norm") + "/model", std::string("--device=cpu"), std::string("--threads=1"),
        std::string("--seq-len"), std::string("24"), std::string("--micro-batch=2"), std::string("--json")})
    all.push_back(word);
  return all;
}

json result_of(const Words& words) { return json::parse(succeed(words).out); }

void expect_keys(const json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) EXPECT_TRUE(object.contains(key)) << key;
}

}  // namespace

TEST(BenchStep, PrintsEveryKeyOfTheContract) {
  const json result = result_of(on_model({"step", "--batch=4", "-r", "3"}));
  expect_keys(result, {"params",    "active_params", "tokens_per_step", "step_s",  "median_s",     "tokens_per_s",
                       "tflops_6n", "tflops_model",  "floor",           "lanes",   "bytes",        "peaks",
                       "loss",      "grad_norm",     "state_hash",      "aliased", "alias_layers", "unified_memory",
                       "commit",    "machine",       "start_s"});
  EXPECT_EQ(result.at("tokens_per_step"), 4 * 24);
  for (const char* key : {"step_s", "loss", "grad_norm"}) EXPECT_EQ(result.at(key).size(), 3u) << key;
  EXPECT_EQ(result.at("state_hash").get<std::string>().size(), 32u);
  EXPECT_EQ(result.at("unified_memory"), true);  // the CPU's memory is host memory
  EXPECT_EQ(result.at("aliased"), false);
  EXPECT_EQ(result.at("alias_layers"), 0);
  EXPECT_GE(result.at("commit").get<std::string>().size(), 7u);
  EXPECT_GT(result.at("start_s"), 0.0);
  EXPECT_LT(result.at("start_s"), 60.0);
  EXPECT_TRUE(result.at("floor").is_null());
  EXPECT_TRUE(result.at("percent_of_floor").is_null());
}

TEST(BenchStep, CountsTheFlopsOfActiveParameters) {
  const json result = result_of({"bench", "step", golden("mixtral") + "/model", "--device=cpu", "--batch=2",
                                 "--seq-len", "24", "-r", "2", "--no-hash", "--json"});
  EXPECT_LT(result.at("active_params"), result.at("params"));
  EXPECT_NEAR(result.at("tflops_6n").get<double>(),
              6e-12 * result.at("active_params").get<double>() * result.at("tokens_per_s").get<double>(), 1e-12);
}

TEST(BenchStep, MeasuresItsFloorWhenAsked) {
  const json result = result_of(on_model({"step", "-r", "2", "--batch=2", "--floor", "--no-hash"}));
  const json& floor = result.at("floor");
  EXPECT_GT(floor.at("recompute"), 0.0);
  EXPECT_GT(floor.at("keep"), 0.0);
  EXPECT_EQ(floor.at("tokens_per_s"), floor.at("keep"));
  EXPECT_EQ(floor.at("mode"), "keep");
  EXPECT_DOUBLE_EQ(result.at("percent_of_floor").get<double>(),
                   100 * result.at("tokens_per_s").get<double>() / floor.at("keep").get<double>());
  EXPECT_TRUE(result.at("state_hash").is_null());
}

TEST(BenchStep, RefusesWhatItWouldIgnore) {
  for (const char* word : {"--steps=7", "--run_dir=foo"})
    expect_refusal(on_model({"step", word}), ExitCode::bad_config, {std::string(word).substr(0, 7), "benchmark"});
  expect_refusal(on_model({"step", "--floor", "--no-floor"}), ExitCode::bad_config, {"--no-floor"});
}

TEST(BenchStep, MeasuringChangesNoBit) {
  const json plain = result_of(on_model({"step", "-r", "2", "--batch=2"})),
             measured = result_of(on_model({"step", "-r", "2", "--batch=2", "--floor"}));
  EXPECT_EQ(plain.at("state_hash"), measured.at("state_hash"));
  EXPECT_EQ(plain.at("loss"), measured.at("loss"));
}

TEST(BenchFloor, IsTheSumOfItsCalls) {
  const json result = result_of(on_model({"floor", "--batch=6"}));
  double recompute = 0, keep = 0;
  for (const json& call : result.at("calls")) {
    recompute += call.at("recompute").get<double>() * call.at("seconds").get<double>();
    keep += call.at("keep").get<double>() * call.at("seconds").get<double>();
    EXPECT_GE(call.at("recompute"), call.at("keep"));
    EXPECT_EQ(call.at("keep").get<int64_t>() % 3, 0) << call;  // three micro-batches
    EXPECT_GT(call.at("tflops"), 0.0);
  }
  const double tokens = result.at("tokens_per_step");
  EXPECT_EQ(tokens, 6 * 24);
  EXPECT_NEAR(result.at("tokens_per_s").at("recompute").get<double>(), tokens / recompute, 1e-6 * tokens / recompute);
  EXPECT_NEAR(result.at("tokens_per_s").at("keep").get<double>(), tokens / keep, 1e-6 * tokens / keep);
  EXPECT_GT(result.at("tokens_per_s").at("keep"), result.at("tokens_per_s").at("recompute"));
}

TEST(BenchOps, TimesEveryOpOfTheModel) {
  const json result = result_of(on_model({"ops"}));
  for (const char* op : {"linear ", "linear grad input", "linear grad weight", "attention ", "attention backward",
                         "rmsnorm ", "rmsnorm backward", "rope", "swiglu ", "swiglu backward", "cross entropy",
                         "embedding ", "embedding backward", "finish gradient", "adamw"}) {
    const auto found = std::find_if(result.at("calls").begin(), result.at("calls").end(), [&](const json& call) {
      return call.at("call").get<std::string>().rfind(op, 0) == 0 && call.at("seconds") > 0 &&
             call.at("bytes_per_s") > 0;
    });
    EXPECT_NE(found, result.at("calls").end()) << op;
  }
}

TEST(BenchLink, MeasuresBothWaysAndBothAtOnce) {
  const json result = result_of({"bench", "link", "--device=cpu", "--largest=64MiB", "--json"});
  ASSERT_EQ(result.at("pieces").size(), 2u);
  EXPECT_EQ(result.at("pieces")[0].at("piece"), 1 << 20);
  EXPECT_EQ(result.at("pieces")[1].at("piece"), 64 << 20);
  for (const json& piece : result.at("pieces")) {
    for (const char* key : {"h2d_bytes_per_s", "d2h_bytes_per_s", "both_bytes_per_s"})
      EXPECT_GT(piece.at(key), 1e6) << key;
  }
}

TEST(BenchDram, MeasuresThePlainLoopAndAdamW) {
  const json result = result_of({"bench", "dram", "--gib", "0.02", "--threads=1", "--json"});
  EXPECT_GT(result.at("plain_bytes_per_s"), 1e6);
  EXPECT_GT(result.at("adamw_bytes_per_s"), 1e6);
  EXPECT_EQ(result.at("threads"), 1);
  EXPECT_EQ(result.at("bytes").get<int64_t>() % 14, 0);
  expect_refusal({"bench", "dram", "--gib=500000"}, ExitCode::cannot_fit, {"--gib", "are free"});
}

TEST(BenchDisk, WritesReadsAndLeavesNothing) {
  const TemporaryDirectory directory;
  const json result = result_of({"bench", "disk", "--dir", directory.path(), "--gib=0.02", "--json"});
  EXPECT_GT(result.at("write_bytes_per_s"), 1e5);
  EXPECT_GT(result.at("read_bytes_per_s"), 1e5);
  EXPECT_GT(result.at("both_bytes_per_s"), 1e5);
  EXPECT_TRUE(result.at("direct").is_boolean());
  EXPECT_TRUE(fs::is_empty(directory.path()));
  expect_refusal({"bench", "disk", "--dir", directory / "absent"}, ExitCode::bad_config, {"absent", "--dir"});
  expect_refusal({"bench", "disk", "--gib=0"}, ExitCode::bad_config, {"--gib", "'0'"});
}

TEST(BenchStep, RefusesKeysOfDataAndOfRunsAndStepsThatAreNotTimed) {
  const std::string model = golden("qwen3_norm") + "/model";
  for (const char* key : {"--data.tokens=x", "--data.train=x", "--epochs=3", "--checkpoint.every=1", "--dump.steps=1",
                          "--eval.every=1", "--steps=2"})
    expect_refusal({"bench", "step", model, "--device=cpu", "--seq-len", "16", "-r", "1", key}, ExitCode::bad_config,
                   {"has no effect on a benchmark"});
  expect_refusal({"bench", "step", model, "--device=cpu", "--seq-len", "16", "-r", "2", "--trace=2-3"},
                 ExitCode::bad_config, {"trace names step 3, and -r is 2"});
}

TEST(BenchSuite, RunsEveryRowAndRecordsTheOnesThatFail) {
  const TemporaryDirectory directory;
  const std::string file = directory / "suite.yaml", model = golden("qwen3_norm") + "/model";
  const std::string common = model + ", --device=cpu, --threads=1, --seq-len, 16, --batch, 2, -r, 2";
  write_bytes(file, fmt::format("- {{name: first, args: [{0}, --floor]}}\n- {{name: too large, args: [{0}, "
                                "--memory.gpu=1KiB]}}\n- {{name: last, args: [{0}, --micro-batch=2, --floor]}}\n",
                                common));
  const Outcome outcome = megatrain({"bench", "suite", file, "--json"});
  EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::cannot_fit)) << outcome.err;
  const json rows = json::parse(outcome.out).at("rows");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].at("name"), "first");
  EXPECT_GT(rows[0].at("result").at("tokens_per_s"), 0);
  EXPECT_FALSE(rows[1].contains("result"));
  EXPECT_EQ(rows[1].at("code"), static_cast<int>(ExitCode::cannot_fit));
  EXPECT_FALSE(rows[1].at("error").get<std::string>().empty());
  EXPECT_GT(rows[2].at("result").at("percent_of_floor"), 0);
  EXPECT_NE(outcome.err.find("row 2/3, too large"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("row last: "), std::string::npos) << "what a suite that is killed leaves: " << outcome.err;
  // run alone, a row gives the same bits
  const json alone = result_of(
      {"bench", "step", model, "--device=cpu", "--threads=1", "--seq-len", "16", "--batch", "2", "-r", "2", "--json"});
  EXPECT_EQ(alone.at("state_hash"), rows[0].at("result").at("state_hash"));
}

TEST(BenchSuite, ReadsJsonAndRefusesWhatIsNoSuite) {
  const TemporaryDirectory directory;
  const std::string file = directory / "suite.json";
  write_bytes(file, "[]");
  EXPECT_TRUE(result_of({"bench", "suite", file, "--json"}).at("rows").empty());
  write_bytes(file, "{\"rows\": 1}");
  expect_refusal({"bench", "suite", file}, ExitCode::bad_config, {file + ":1", "list"});
  write_bytes(file, "- {name: a, args: [x]}\n- {name: b}\n");
  expect_refusal({"bench", "suite", file}, ExitCode::bad_config, {file + ":2", "args"});
  write_bytes(file, "- &a {name: a, args: [*a]}\n");
  expect_refusal({"bench", "suite", file}, ExitCode::bad_config, {file + ":1", "alias"});
  expect_refusal({"bench", "suite", directory / "absent"}, ExitCode::bad_input, {"absent"});
}

TEST(BenchHelp, EveryVerbExplainsItself) {
  for (const char* verb : {"step", "floor", "ops", "link", "dram", "disk", "suite"}) {
    const Outcome outcome = succeed({"bench", verb, "--help"});
    EXPECT_NE(outcome.out.find(fmt::format("megatrain bench {}", verb)), std::string::npos) << outcome.out;
    EXPECT_NE(succeed({"bench", "--help"}).out.find(fmt::format("megatrain bench {}", verb)), std::string::npos);
  }
  expect_refusal({"bench"}, ExitCode::bad_config, {"step", "suite"});
  expect_refusal({"bench", "step", "qwen2.5-0.5b", "-r", "0"}, ExitCode::bad_config, {"-r", "0"});
  expect_refusal({"bench", "sprint"}, ExitCode::bad_config, {"sprint", "floor"});
  expect_refusal({"bench", "link", "qwen2.5-7b"}, ExitCode::bad_config, {"qwen2.5-7b"});
}

}  // namespace megatrain::cli
