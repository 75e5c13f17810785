// Memory limits set by users: a run stays within them or is refused before it starts. Nothing is ever killed for
// memory.
#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// 3.4 million parameters: 41 MB of state.
json small_model() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 1024},
          {"hidden_size", 192},
          {"intermediate_size", 512},
          {"num_hidden_layers", 7},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-6},
          {"tie_word_embeddings", false}};
}

}  // namespace

TEST(MemoryLimits, FortyOfThemAreKeptOrRefused) {
  const TemporaryDirectory directory;
  write_bytes(directory / "config.json", small_model().dump());
  int kept = 0, refused = 0, on_disk = 0;
  for (int64_t host = 8; host <= 80; host += 8) {
    for (const int64_t device : {4, 12}) {
      for (const bool disk : {false, true}) {
        Words words = {"bench",
                       "step",
                       directory / "config.json",
                       "--device=cpu",
                       "--threads=1",
                       "--batch=2",
                       "--micro-batch=1",
                       "--seq-len=16",
                       "-r",
                       "1",
                       "--no-hash",
                       "--json",
                       fmt::format("--memory.host={}MiB", host),
                       fmt::format("--memory.gpu={}MiB", device)};
        if (disk) words.insert(words.end(), {"--memory.nvme_path=" + directory.path(), "--memory.nvme=20MiB"});
        const Outcome outcome = megatrain(words);
        const std::string limits = fmt::format("host {} MiB, device {} MiB, disk {}", host, device, disk);
        if (outcome.code == static_cast<int>(ExitCode::cannot_fit)) {
          EXPECT_NE(outcome.err.find("and the budget is"), std::string::npos) << limits << ": " << outcome.err;
          ++refused;
          continue;
        }
        ASSERT_EQ(outcome.code, 0) << limits << ": " << outcome.err;
        const json peaks = json::parse(outcome.out).at("peaks");
        EXPECT_LE(peaks.at("hbm"), peaks.at("hbm_planned")) << limits;
        EXPECT_LE(peaks.at("hbm_planned"), device * kMiB) << limits;
        EXPECT_LE(peaks.at("host_planned"), host * kMiB) << limits;
        EXPECT_LE(peaks.at("disk_planned"), (disk ? 20 : 0) * kMiB) << limits;
        on_disk += peaks.at("disk_planned") > 0;
        ++kept;
      }
    }
  }
  EXPECT_GE(kept, 10);
  EXPECT_GE(refused, 10);
  EXPECT_GE(on_disk, 1);
}

// Memory that does not grow with the layers is the process itself: what a small model uses beyond its plan.
TEST(MemoryLimits, ManySmallLayersTakeTheMemoryThatThePlanCounts) {
  const TemporaryDirectory directory;
  const auto taken = [&](int64_t layers) {
    json model = small_model();
    model.update({{"hidden_size", 32}, {"intermediate_size", 64}, {"num_hidden_layers", layers}});
    write_bytes(directory / "config.json", model.dump());
    const json peaks =
        json::parse(succeed({"bench", "step", directory / "config.json", "--device=cpu", "--threads=1", "--batch=2",
                             "--micro-batch=1", "--seq-len=16", "-r", "1", "--no-hash", "--json"})
                        .out)
            .at("peaks");
    const auto planned = peaks.at("hbm_planned").get<int64_t>() + peaks.at("host_planned").get<int64_t>();
    return std::pair{planned, peaks.at("host").get<int64_t>()};
  };
  const auto [few_planned, few] = taken(2);
  const auto [planned, many] = taken(200);
  EXPECT_GT(planned, few_planned + 30 * kMiB);
  EXPECT_LT(many - (few - few_planned), planned * 13 / 10);
}

TEST(MemoryLimits, LayersThatTheWeightsDoNotHaveAreRefusedBeforeAnythingIsAllocated) {
  Place place("llama_linear", "steps: 1\n");
  const std::string model = place.own_model();
  json config = json::parse(read_bytes(model + "/config.json"));
  config["num_hidden_layers"] = 2000;
  config.erase("layer_types");
  write_bytes(model + "/config.json", config.dump());
  Process process({"train", place.config()}, "", "ulimit -v 4000000; exec \"$0\" \"$@\"");
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::bad_input)) << outcome.err;
  for (const std::string part : {"no tensor model.layers.", " more", "config.json"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
}

}  // namespace megatrain::cli
