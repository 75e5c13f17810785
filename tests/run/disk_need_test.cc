// What a run will write to disk, and whether there is enough space.
#include "megatrain/run/disk_need.h"
#include "megatrain/model/parse_config.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/json.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

ModelConfig model() {
  return parse_model_config({{"architectures", {"Qwen3ForCausalLM"}},
                             {"vocab_size", 5000},
                             {"hidden_size", 128},
                             {"intermediate_size", 512},
                             {"num_hidden_layers", 4},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 2},
                             {"head_dim", 32}},
                            "config.json");
}

TrainConfig run(const std::string& text) {
  return parse_config(text, "run.yaml", {}, {.model = false, .data = false, .steps = false});
}

int64_t bytes_of(const std::string& text, std::optional<int64_t> steps, int64_t scratch = 0) {
  return disk_need(run(text), model(), {}, steps, scratch).bytes();
}

// Everything below /big is one file system, everything else is another.
FreeSpaceOf two_disks(int64_t big, int64_t small) {
  return [=](const std::string& path) -> std::optional<FreeSpace> {
    return path.starts_with("/big") ? FreeSpace{.device = 1, .bytes = big} : FreeSpace{.device = 2, .bytes = small};
  };
}

}  // namespace

TEST(DiskNeed, CountsTheCheckpointsThatStayTheOneBeingWrittenAndTheModel) {
  const int64_t exported = bytes_of("run_dir: r", 100),
                checkpoint = disk_need(run(""), model(), {}, 1).checkpoint_bytes;
  EXPECT_GT(checkpoint, 5 * exported);  // 12 bytes per parameter compared with 2
  EXPECT_EQ(bytes_of("checkpoint: {every: 10, keep: 2}", 100), exported + 3 * checkpoint);
  EXPECT_EQ(bytes_of("checkpoint: {every: 10, keep: 1}", 100), exported + 2 * checkpoint);
  EXPECT_EQ(bytes_of("checkpoint: {every: 10, keep: 200}", 100), exported + 10 * checkpoint);  // there are no more
  EXPECT_EQ(bytes_of("checkpoint: {every: 200, keep: 2}", 100), exported);
  EXPECT_EQ(bytes_of("conventions: transformers\ncheckpoint: {every: 200, keep: 2}", 100), exported + checkpoint);
  EXPECT_EQ(bytes_of("checkpoint: {every: 10, keep: 2}", {}), exported);  // the data may be enough for only nine steps
}

TEST(DiskNeed, CountsTheTokenizersFilesInEveryModelAndBesideThem) {
  const TemporaryDirectory source;
  write_bytes(source / "tokenizer.json", std::string(1000, 'x'));
  std::filesystem::create_directory(source / "additional_chat_templates");
  write_bytes(source / "additional_chat_templates/tools.jinja", std::string(500, 'x'));
  write_bytes(source / "notes.txt", std::string(250, 'x'));
  const std::string path = "model.path: " + source.path() + "\n",
                    best = "data: {train: t.jsonl, eval: e.jsonl}\neval.keep_best: true\n";
  EXPECT_EQ(bytes_of(path, 100), bytes_of("", 100) + 2 * 1500);
  EXPECT_EQ(bytes_of(path + best, 100), bytes_of(best, 100) + 4 * 1500);
  EXPECT_EQ(bytes_of("model.config: c.json\ndata.tokenizer: " + (source / "tokenizer.json"), 100), bytes_of(path, 100));
}

TEST(DiskNeed, CountsDumpsTheBestModelAndStateOnDisk) {
  const int64_t exported = bytes_of("", 100);
  EXPECT_EQ(bytes_of("data: {train: t.jsonl, eval: e.jsonl}\neval.keep_best: true\n", 100),
            3 * exported);  // a better one is written beside it
  EXPECT_EQ(bytes_of("memory.nvme_path: /tmp\n", 100, 12345), exported + 12345);
  const int64_t two = bytes_of("dump.state: [3, 5]", 100) - exported, all = bytes_of("dump.state: all", 100) - exported;
  EXPECT_GT(two, 0);
  EXPECT_EQ(all, 50 * two);
  EXPECT_LT(bytes_of("dump.grads: [3, 5]", 100) - exported, two / 2);
}

TEST(DiskNeed, IsLessInASmallerStateFormat) {
  const auto checkpoint = [](const char* text) { return disk_need(run(text), model(), {}, 1).checkpoint_bytes; };
  EXPECT_NEAR(static_cast<double>(checkpoint("state.moments: int8")) / static_cast<double>(checkpoint("")), 0.5, 0.02);
  EXPECT_LT(checkpoint("state: {moments: int8, master: stochastic}"), checkpoint("state.moments: int8"));
  EXPECT_LT(checkpoint("freeze: ['model.layers.*']"), checkpoint(""));
}

TEST(DiskNeed, AShortageSaysWhatIsNeededWhereWhatIsFreeAndWhichKeysLowerIt) {
  const TrainConfig config = run("run_dir: /big/run\ncheckpoint: {every: 10, keep: 2}\n");
  const DiskNeed need = disk_need(config, model(), {}, 100);
  EXPECT_EQ(disk_problem(need, two_disks(need.bytes(), 0)), "");
  const std::string problem = disk_problem(need, two_disks(need.bytes() - 1, 0));
  for (const std::string& part :
       {format_bytes_up(need.bytes()), std::string("/big/run"), std::string("3 checkpoints of"),
        std::string("checkpoint.keep is 2"), std::string("the model"), std::string("are free there"),
        std::string("lower checkpoint.keep"), std::string("run_dir")})
    EXPECT_NE(problem.find(part), std::string::npos) << part << " in: " << problem;
  EXPECT_THROW(check_disk_need(need, two_disks(need.bytes() - 1, 0)), Error);
}

TEST(DiskNeed, WhereFewerCheckpointsCannotStayTheRemedyIsToSaveNone) {
  const auto remedy = [](const std::string& text) {
    return disk_problem(disk_need(run("run_dir: /big/run\n" + text), model(), {}, 3), two_disks(1, 0));
  };
  EXPECT_NE(remedy("checkpoint: {every: 3}\n").find("set checkpoint.every: 0 to save"), std::string::npos);
  const std::string theirs = remedy("save_steps: 500\nsave_total_limit: 9\nconventions: transformers\n");
  EXPECT_NE(theirs.find("set --checkpoint.every=0 to save"), std::string::npos) << theirs;
}

TEST(DiskNeed, TellsWhetherACheckpointThatASignalAsksForWouldFit) {
  const DiskNeed need = disk_need(run("run_dir: /big/run"), model(), {}, 100);
  EXPECT_TRUE(stop_fits(need, "/big/run", two_disks(need.bytes() + need.checkpoint_bytes, 0)));
  EXPECT_FALSE(stop_fits(need, "/big/run", two_disks(need.bytes() + need.checkpoint_bytes - 1, 0)));
}

TEST(DiskNeed, PathsOnOneFileSystemAreSummedAndOthersAreNot) {
  const TrainConfig config = run("run_dir: /big/run\nmemory.nvme_path: /big/scratch\n");
  const DiskNeed need = disk_need(config, model(), {}, 1, 10 * kMiB);
  ASSERT_EQ(need.parts.size(), 2u);
  EXPECT_NE(disk_problem(need, two_disks(need.bytes() - 1, 0)), "");
  EXPECT_NE(disk_problem(need, two_disks(need.bytes() - 1, 0)).find("/big/run and /big/scratch (one file system)"),
            std::string::npos);
  TrainConfig apart = config;
  apart.memory.nvme_path = "/small";
  const DiskNeed two = disk_need(apart, model(), {}, 1, 10 * kMiB);
  EXPECT_EQ(disk_problem(two, two_disks(two.bytes() - 10 * kMiB, 10 * kMiB)), "");
  EXPECT_NE(disk_problem(two, two_disks(two.bytes(), 10 * kMiB - 1)).find("memory.nvme_path"), std::string::npos);
}

TEST(DiskNeed, AFileSystemThatTellsNothingRefusesNothing) {
  const DiskNeed need = disk_need(run("checkpoint.every: 1"), model(), {}, 100);
  EXPECT_EQ(disk_problem(need, [](const std::string&) { return std::optional<FreeSpace>(); }), "");
  EXPECT_EQ(describe(need, {}).find("free"), std::string::npos);
}

TEST(DiskNeed, SumsThatNoNumberHoldsAreTooMuch) {
  TrainConfig config = run("checkpoint: {every: 1, keep: 1000000000}\ndump.state: all\n");
  const DiskNeed need = disk_need(config, model(), {}, int64_t{1} << 62);
  EXPECT_NE(disk_problem(need, two_disks(int64_t{1} << 50, int64_t{1} << 50)), "");
}

TEST(FreeSpace, IsThatOfTheNearestFolderThatIsThere) {
  const TemporaryDirectory directory;
  const auto here = free_space(directory.path()), below = free_space(directory / "a/b/c");
  ASSERT_TRUE(here && below);
  EXPECT_EQ(here->device, below->device);
  EXPECT_GT(below->bytes, 0);
}

}  // namespace megatrain
