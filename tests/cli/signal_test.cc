// Signals, closed pipes and closed descriptors, as shells and schedulers cause them.
#include "megatrain/run/checkpoints.h"
#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool reached(const std::string& run, int64_t step) {
  return has(read_bytes(run + "/metrics.jsonl"), fmt::format("{{\"step\":{},", step));
}

bool has_checkpoint(const std::string& run) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run + "/checkpoints", none)) {
    if (entry.path().extension() != ".partial") return true;
  }
  return false;
}

// A model and data for which one step takes far longer than a test: attention over one very long document.
class SlowPlace : public Place {
 public:
  SlowPlace() : Place("llama_linear", "steps: 2\n") {
    json config = json::parse(read_bytes(golden("llama_linear") + "/model/config.json"));
    config["max_position_embeddings"] = kTokens;
    write_bytes(*this / "config.json", config.dump());
    write_bytes(*this / "long.bin", std::string(2 * kTokens, '\0'));
  }
  Words words() const {
    return {"train",
            config(),
            "--model.path=null",
            "--model.config=" + (*this / "config.json"),
            "--data.tokens=" + (*this / "long.bin"),
            "--data.documents=null",
            "--data.labels=null",
            "--data.order=null",
            "--data.dtype=uint16",
            "--batch=1",
            "--micro_batch=1",
            fmt::format("--seq_len={}", kTokens)};
  }

 private:
  static constexpr int64_t kTokens = 30000;
};

// Asks with SIGUSR1, which changes nothing here, until the answer shows that a step is running.
bool in_a_step(const Process& process) {
  return eventually([&] {
    process.signal(SIGUSR1);
    return has(process.said(), "finishing step 1 (");
  });
}

}  // namespace

TEST(Signals, AStepThatRunsIsNamedWhileItRunsAndASecondSignalEndsItAtOnce) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const SlowPlace place;
    Process process(place.words());
    ASSERT_TRUE(eventually([&] { return has(process.said(), "tokens a step"); })) << process.said();
    ASSERT_TRUE(eventually([&] { return fs::exists(place.run() + "/identity.json"); })) << process.said();
    ASSERT_TRUE(in_a_step(process)) << process.said();
    EXPECT_TRUE(has(process.said(), "a checkpoint is saved after the running step, and the run continues"));
    process.signal(signal);
    const std::string name = signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGHUP";
    ASSERT_TRUE(eventually([&] { return has(process.said(), name + ": finishing step 1 ("); })) << process.said();
    EXPECT_TRUE(has(process.said(), "it then saves a checkpoint of ")) << process.said();
    EXPECT_FALSE(reached(place.run(), 1)) << "the line came while the step ran";
    ASSERT_TRUE(eventually([&] {
      process.signal(signal);
      return process.ended();
    }));
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.code, 128 + signal) << outcome.err;
    EXPECT_TRUE(has(outcome.err, "a second signal: ended at once")) << outcome.err;
    EXPECT_FALSE(has_checkpoint(place.run()));
    EXPECT_FALSE(fs::exists(place.run() + "/model"));
    EXPECT_EQ(read_bytes(place.run() + "/metrics.jsonl"), "");
  }
}

TEST(Signals, TwoAtOnceAreOneWishAndTheRunIsSaved) {
  for (bool at_once = false; !at_once;) {
    const Place place("llama_linear", "steps: 100000\n");
    Process process({"train", place.config()});
    ASSERT_TRUE(eventually([&] { return reached(place.run(), 3); }));
    const auto first = std::chrono::steady_clock::now();
    process.signal(SIGHUP);  // as when a terminal closes: one from its shell, one from the kernel
    process.signal(SIGHUP);
    at_once = std::chrono::steady_clock::now() - first < std::chrono::milliseconds(100);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.code, 128 + SIGHUP) << outcome.err;
    if (!at_once) continue;  // this test was delayed between the two signals, so they count as two requests
    EXPECT_TRUE(has_checkpoint(place.run()));
    expect_no_partial(place.run());
  }
}

TEST(Signals, SigusrSavesAndTheRunGoesOn) {
  const Place place("llama_linear", "steps: 100000\ncheckpoint.keep: 1\n");
  Process process({"train", place.config()});
  const auto newest = [&] {
    const auto all = list_checkpoints(place.run());
    return all.empty() ? 0 : all.back().first;
  };
  for (const int64_t step : {3, 30}) {
    ASSERT_TRUE(eventually([&] { return reached(place.run(), step); }));
    const int64_t before = newest();
    process.signal(SIGUSR1);
    ASSERT_TRUE(eventually([&] { return newest() > before; }));
  }
  process.signal(SIGTERM);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, 128 + SIGTERM) << outcome.err;
  EXPECT_TRUE(has(outcome.err, "SIGUSR1: ")) << outcome.err;
  EXPECT_TRUE(has(outcome.err, ", as SIGUSR1 asked; the run continues")) << outcome.err;
  EXPECT_EQ(listing(place.run() + "/checkpoints").size(), 1u) << "checkpoint.keep holds for these too";
  const json ended = hash_of(place.run());
  succeed({"train", place.config(), "--steps=" + ended.at("step").dump(), "--run_dir=" + (place / "straight")});
  EXPECT_EQ(ended.at("state"), hash_of(place / "straight").at("state"));
}

TEST(Signals, SighupStaysIgnoredUnderNohup) {
  const Place place("llama_linear", "steps: 300\n");
  Process process({"train", place.config()}, "", "trap '' HUP; exec \"$0\" \"$@\"");
  ASSERT_TRUE(eventually([&] { return reached(place.run(), 3); }));
  process.signal(SIGHUP);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(metrics_of(place.run()).size(), 300u);
}

TEST(Signals, AClosedPipeDoesNotEndARun) {
  const Place place("llama_linear", "steps: 60\n");
  const std::string code = place / "code";
  Process process(
      {"train", place.config()}, "",
      fmt::format("{{ \"$0\" \"$@\" 2>&1; echo $? >{}.new; mv {}.new {}; }} | head -n 1", code, code, code));
  const Outcome outcome = process.wait();
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
  ASSERT_TRUE(eventually([&] { return fs::exists(code); }));
  EXPECT_EQ(read_bytes(code), "0\n");
  EXPECT_EQ(metrics_of(place.run()).size(), 60u);
  EXPECT_TRUE(fs::exists(place.run() + "/hash.json"));
}

TEST(Signals, AJsonResultThatNobodyCanReadIsAnErrorOfAFinishedRun) {
  const Place place("llama_linear", "steps: 2\n");
  const std::string shell = "{ \"$0\" \"$@\"; echo code $? >&2; } | true";
  for (const bool json : {true, false}) {
    Words words = {"train", place.config()};
    if (json) words.push_back("--json");
    Process process(words, "", shell);
    process.wait();
    ASSERT_TRUE(eventually([&] { return has(process.said(), "code "); })) << process.said();
    EXPECT_TRUE(has(process.said(), json ? "code 5" : "code 0")) << process.said();
    EXPECT_TRUE(has(process.said(), "could not be written to standard output")) << process.said();
    EXPECT_TRUE(fs::exists(place.run() + "/model/config.json"));
  }
}

TEST(Signals, AResultThatTheDiskHasNoRoomForIsExitCode5) {
  const Place place("llama_linear", "steps: 1\n");
  const Outcome outcome =
      Process({"hash", golden("llama_linear") + "/model", "--json"}, "", "exec \"$0\" \"$@\" >/dev/full").wait();
  EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::io)) << outcome.err;
  EXPECT_TRUE(has(outcome.err, "standard output")) << outcome.err;
}

TEST(Signals, WithDescriptorsClosedNoLogLineLandsInTheRunsFiles) {
  const Place place("llama_linear", "steps: 3\ncheckpoint.every: 2\n");
  succeed({"train", place.config(), "--run_dir=" + (place / "straight")});
  for (const std::string closed : {"2>&-", ">&- 2>&-", "<&- >&- 2>&-", "<&- 2>&-"}) {
    const std::string run = place / "run" + std::to_string(closed.size());
    const Outcome outcome =
        Process({"train", place.config(), "--run_dir=" + run}, "", "exec \"$0\" \"$@\" " + closed).wait();
    EXPECT_EQ(outcome.code, 0) << closed;
    EXPECT_EQ(read_bytes(run + "/hash.json"), read_bytes(place / "straight/hash.json")) << closed;
    EXPECT_EQ(metrics_of(run).size(), 3u) << closed;
    for (const auto& entry : fs::recursive_directory_iterator(run)) {
      if (!entry.is_regular_file()) continue;
      const std::string bytes = read_bytes(entry.path());
      for (const char* line : {"step 1/3", "loading the weights", "tokens a step", "saving a checkpoint"})
        EXPECT_FALSE(has(bytes, line)) << closed << ": '" << line << "' in " << entry.path();
    }
  }
}

}  // namespace megatrain::cli
