// What schedulers do: SIGTERM, and a little later SIGKILL, with one checkpoint kept. Whenever the two arrive, the
// newest whole checkpoint seen so far stays or is followed by a newer one. The run resumes from it with the same bits.
//
// One pass is ten kills. For 200: test_cli --gtest_filter='Kill.*' --gtest_repeat=20
#include <cstdio>

#include "megatrain/base/rng.h"
#include "megatrain/run/checkpoints.h"
#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

constexpr int64_t kSteps = 60;
constexpr int kKills = 10;

// A model whose state takes some milliseconds to save.
std::string write_model_config(const TemporaryDirectory& directory) {
  const json config = {{"architectures", {"LlamaForCausalLM"}},
                       {"model_type", "llama"},
                       {"vocab_size", 64},
                       {"hidden_size", 64},
                       {"intermediate_size", 192},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 4},
                       {"max_position_embeddings", 64},
                       {"rms_norm_eps", 1e-5},
                       {"hidden_act", "silu"},
                       {"tie_word_embeddings", false},
                       {"rope_theta", 10000.0},
                       {"torch_dtype", "float32"}};
  write_bytes(directory / "config.json", config.dump());
  std::string tokens;
  for (uint64_t i = 0; i < 4096; ++i) {
    tokens += static_cast<char>(random_below(1, 2, i, 64));
    tokens += '\0';
  }
  write_bytes(directory / "tokens.bin", tokens);
  write_bytes(directory / "config.yaml",
              fmt::format("model.config: {}\ndata.tokens: {}\ndevice: cpu\nthreads: 1\nprecision: fp32\nseq_len: 8\n"
                          "batch: 1\nsteps: {}\ncheckpoint: {{every: 1, keep: 1}}\nrun_dir: {}\n",
                          directory / "config.json", directory / "tokens.bin", kSteps, directory / "run"));
  return directory / "config.yaml";
}

// The step of the newest checkpoint whose state matches its recorded hash; 0: none.
int64_t newest_whole(const std::string& run, std::map<int64_t, std::string>* hashes) {
  int64_t newest = 0;
  for (const auto& [step, path] : list_checkpoints(run)) {
    try {
      (*hashes)[step] = verify_checkpoint(read_checkpoint(path)).state;
      newest = step;
    } catch (const Error&) {
      // removed while it was read, or incomplete
    }
  }
  return newest;
}

}  // namespace

TEST(Kill, SigtermThenSigkillNeverLosesAWholeCheckpoint) {
  static uint64_t passes = 0;  // every pass of --gtest_repeat kills at other times
  const uint64_t pass = passes++;
  const TemporaryDirectory directory;
  const std::string config = write_model_config(directory), run = directory / "run";
  std::map<int64_t, std::string> straight, hashes;
  succeed({"train", config, "--run_dir=" + (directory / "straight"), "--checkpoint.keep=1000"});
  ASSERT_EQ(newest_whole(directory / "straight", &straight), kSteps);

  int lost = 0, ended = 0;
  int64_t seen = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    const auto below = [&](uint64_t purpose, uint64_t n) {
      return static_cast<int64_t>(random_below(pass, purpose, static_cast<uint64_t>(kill), n));
    };
    const int64_t before = seen;
    Process process({"train", config, "--resume"});
    const int64_t target = std::min(before + 1 + below(1, 3), kSteps);
    ASSERT_TRUE(eventually([&] {
      const auto all = list_checkpoints(run);
      return !all.empty() && all.back().first >= target;
    }));
    std::this_thread::sleep_for(std::chrono::microseconds(below(2, 20'000)));
    seen = std::max(seen, newest_whole(run, &hashes));
    process.signal(SIGTERM);
    std::this_thread::sleep_for(std::chrono::microseconds(below(3, 200'000)));
    process.signal(SIGKILL);
    const Outcome outcome = process.wait();
    ASSERT_TRUE(outcome.code == -SIGKILL || outcome.code == 128 + SIGTERM || outcome.code == 0) << outcome.err;
    const int64_t left = newest_whole(run, &hashes);
    if (left < seen) {
      ++lost;
      ADD_FAILURE() << "kill " << kill << ": step " << seen << " was whole, " << left << " is left\n" << outcome.err;
    }
    seen = std::max(seen, left);
    if (outcome.code != 0 && seen < kSteps) continue;
    // The run finished, so the next kill is of a new one.
    ++ended;
    fs::remove_all(run);
    seen = 0;
  }
  for (const auto& [step, hash] : hashes) EXPECT_EQ(hash, straight.at(step)) << "step " << step;
  std::printf("%d kills, %d lost, %d runs came to their end, %zu states compared\n", kKills, lost, ended,
              hashes.size());

  succeed({"train", config, "--resume"});
  EXPECT_EQ(hash_of(run), hash_of(directory / "straight"));
  expect_no_partial(run);
}

}  // namespace megatrain::cli
