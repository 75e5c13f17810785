// state.moments and state.master: set by the user, part of the run's identity, the same bits after a resume.
#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

const std::vector<Words> kFormats = {{"--precision=bf16", "--state.moments=bf16"},
                                     {"--precision=bf16", "--state.moments=int8"},
                                     {"--precision=bf16", "--state.master=stochastic"},
                                     {"--precision=bf16", "--state.moments=int8", "--state.master=stochastic"}};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(StateFormat, ResumeIsExactAndTheCheckpointIsSmaller) {
  const Place place("qwen2_tied", "steps: 6\ncheckpoint: {every: 3}\n");
  succeed({"train", place.config(), "--precision=bf16", "--run_dir=" + (place / "fp32")});
  const auto state_bytes = [&](const std::string& run) {
    return fs::file_size(run + "/checkpoints/step-00000003/state.safetensors");
  };
  const auto exact = state_bytes(place / "fp32");
  for (size_t i = 0; i < kFormats.size(); ++i) {
    const std::string straight = place / fmt::format("straight-{}", i), stopped = place / fmt::format("stopped-{}", i);
    const Outcome run = succeed(with({"train", place.config(), "--run_dir=" + straight}, kFormats[i]));
    EXPECT_NE(run.err.find("smaller, not exact"), std::string::npos) << "the log names the format";
    EXPECT_LT(static_cast<double>(state_bytes(straight)), 0.84 * static_cast<double>(exact));
    EXPECT_NE(hash_of(straight).at("state"), hash_of(place / "fp32").at("state"));

    // the checkpoint's hash is that of the values, like the run's own
    EXPECT_EQ(hash_of(straight + "/checkpoints/step-00000006").at("state"), hash_of(straight).at("state"));

    succeed(with({"train", place.config(), "--run_dir=" + stopped, "--steps=3"}, kFormats[i]));
    succeed(with({"train", place.config(), "--run_dir=" + stopped, "--resume"}, kFormats[i]));
    EXPECT_EQ(hash_of(stopped), hash_of(straight)) << fmt::format("{}", fmt::join(kFormats[i], " "));

    // one seed, one state; another format is another run
    expect_refusal({"train", place.config(), "--precision=bf16", "--run_dir=" + stopped, "--resume", "--steps=7"},
                   ExitCode::bad_config, {"state.", "\"fp32\"", "resuming would not be exact"});
  }
  expect_refusal(with({"train", place.config(), "--run_dir=" + (place / "fp32"), "--resume", "--steps=7"}, kFormats[1]),
                 ExitCode::bad_config, {"state.moments", "\"int8\"", "resuming would not be exact"});
}

TEST(StateFormat, DumpsAreOfTheValuesInFp32) {
  const Place place("llama_linear", "steps: 2\ndump: {state: [2]}\n");
  succeed(with({"train", place.config()}, kFormats[3]));
  const json dump = hash_of(place.run() + "/state-2.safetensors"), state = hash_of(place.run());
  EXPECT_EQ(dump.at("state"), state.at("state"));
  EXPECT_EQ(dump.at("tensors"), state.at("tensors"));
}

TEST(StateFormat, AStochasticMasterNeedsBf16Weights) {
  const Place place("llama_linear", "steps: 1\n");
  expect_refusal({"train", place.config(), "--precision=fp32", "--state.master=stochastic"}, ExitCode::bad_config,
                 {"state.master", "precision"});
  expect_refusal({"train", place.config(), "--state.moments=int4"}, ExitCode::bad_config, {"state.moments", "int8"});
}

}  // namespace

}  // namespace megatrain::cli
