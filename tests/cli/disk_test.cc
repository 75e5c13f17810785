// Optimizer state on disk as users see it: the same bits as in memory, nothing left behind, and clear error messages.
#include <sys/resource.h>

#include "megatrain/run/checkpoints.h"
#include "tests/support/command.h"
#include "tests/support/flip_scratch.h"

namespace megatrain::cli {

namespace {

// A model with ten blocks, since slabs take the memory of two, and a directory for the state.
class DiskPlace {
 public:
  explicit DiskPlace(const std::string& extra) {
    json model = json::parse(read_bytes(golden("llama_linear") + "/model/config.json"));
    model["num_hidden_layers"] = 10;
    write_bytes(place_ / "ten.json", model.dump());
    fs::create_directory(scratch());
    std::string text = golden_yaml("llama_linear", "", place_.run(), extra);
    text.replace(0, text.find('\n'), "model.config: " + (place_ / "ten.json"));
    write_bytes(place_.config(), text);
    const json plan = json::parse(succeed({"plan", place_.config(), "--json"}).out);
    EXPECT_EQ(plan.at("peaks").at("disk"), 0);
    small_ = fmt::format("--memory.host={}", plan.at("peaks").at("host").get<int64_t>() * 13 / 20);
  }

  const Place& operator*() const { return place_; }
  const Place* operator->() const { return &place_; }
  std::string scratch() const { return place_ / "scratch"; }
  // A budget with a third less than the run needs without a disk.
  const std::string& small() const { return small_; }
  Words disk() const {
    return {"train", place_.config(), small_, "--memory.nvme=64MiB", "--memory.nvme_path=" + scratch()};
  }

 private:
  Place place_;
  std::string small_;
};

Words with(Words words, const std::string& more) {
  words.push_back(more);
  return words;
}

void expect_same_state(const std::string& run, const std::string& straight) {
  EXPECT_EQ(read_bytes(run + "/hash.json"), read_bytes(straight + "/hash.json"));
}

constexpr const char* kMoreStepsThanAreEverMade = "--steps=100000";

// Requests a checkpoint once the run has made a few steps. Returns its step, or 0 if none was written.
int64_t saved_step(const Process& process, const std::string& run) {
  const auto has_begun = [&] { return read_bytes(run + "/metrics.jsonl").find("{\"step\":3,") != std::string::npos; };
  if (!eventually(has_begun)) return 0;
  process.signal(SIGUSR1);
  int64_t step = 0;
  eventually([&] {
    for (const auto& [saved, path] : list_checkpoints(run)) step = saved;
    return step > 0;
  });
  return step;
}

// Checks that the run continues from its checkpoint exactly like one that was never interrupted.
void expect_exact_resume(const DiskPlace& place, int64_t saved) {
  const std::string steps = fmt::format("--steps={}", saved + 20), straight = *place / "straight";
  succeed({"train", place->config(), steps, "--run_dir=" + straight});
  succeed(with(with(place.disk(), steps), "--resume"));
  expect_same_state(place->run(), straight);
}

}  // namespace

TEST(DiskTier, MakesUpForHostMemoryThatIsTooSmallToTheSameBits) {
  for (const char* clip : {"1.3", "0"}) {
    const DiskPlace place(fmt::format("steps: 6\nmicro_batch: 2\n"));
    const std::string clipping = fmt::format("--optim.clip={}", clip);
    succeed({"train", place->config(), clipping, "--run_dir=" + (*place / "straight")});
    expect_refusal({"train", place->config(), clipping, place.small()}, ExitCode::cannot_fit,
                   {"host memory", "memory.nvme", "memory.nvme_path"});
    const Outcome outcome = succeed(with(place.disk(), clipping));
    EXPECT_NE(outcome.err.find(" are in " + place.scratch()), std::string::npos) << outcome.err;
    expect_same_state(place->run(), *place / "straight");
    EXPECT_TRUE(listing(place.scratch()).empty());

    const json memory = json::parse(read_bytes(place->run() + "/memory.json"));
    int64_t bytes = 0;  // moments and gradients
    for (const json& part : memory.at("disk")) bytes += part.get<int64_t>();
    EXPECT_GT(bytes, 0);
    for (const json& line : metrics_of(place->run())) {
      EXPECT_EQ(line.at("bytes").at("disk_read"), bytes);
      EXPECT_EQ(line.at("bytes").at("disk_write"), bytes);
      EXPECT_TRUE(line.at("lanes").contains("disk_write"));
    }
  }
}

TEST(DiskTier, HoldsTheWeightsOfAModelThatIsLargerThanMemory) {
  const DiskPlace place("steps: 4\nmicro_batch: 2\n");
  succeed({"train", place->config(), "--run_dir=" + (*place / "straight")});
  // the smallest budget, to within 1%, with which it runs
  const json plan = json::parse(succeed({"plan", place->config(), "--json"}).out);
  const int64_t all = plan.at("peaks").at("host").get<int64_t>();
  const Words disk = {"--memory.nvme=64MiB", "--memory.nvme_path=" + place.scratch()};
  const auto words = [&](const char* verb, int64_t hundredths) {
    return Words{verb, place->config(), disk[0], disk[1], fmt::format("--memory.host={}", all * hundredths / 100)};
  };
  int64_t least = 65;
  while (least > 1 && megatrain(words("plan", least - 1)).code == 0) --least;
  EXPECT_EQ(megatrain(words("plan", least - 1)).code, static_cast<int>(ExitCode::cannot_fit));
  succeed(words("train", least));
  expect_same_state(place->run(), *place / "straight");
  const json memory = json::parse(read_bytes(place->run() + "/memory.json"));
  EXPECT_GT(memory.at("disk").at("weights").get<int64_t>(), 0);
  EXPECT_TRUE(listing(place.scratch()).empty());
}

TEST(DiskTier, AKilledRunLeavesNothingThereAndResumesToTheSameBits) {
  const DiskPlace place("steps: 1\n");
  Process process(with(place.disk(), kMoreStepsThanAreEverMade));
  const int64_t saved = saved_step(process, place->run());
  ASSERT_GT(saved, 0);
  process.signal(SIGKILL);
  ASSERT_EQ(process.wait().code, -SIGKILL);
  EXPECT_TRUE(listing(place.scratch()).empty());
  expect_exact_resume(place, saved);
}

// A limit on file size that takes effect during the run simulates a disk that fills up: every write past it fails.
TEST(DiskTier, ADiskThatTakesNoMoreHalfWayEndsTheRunAndTheLastCheckpointIsGood) {
  const DiskPlace place("steps: 1\n");
  Process process(with(place.disk(), kMoreStepsThanAreEverMade), "", "trap '' XFSZ; exec \"$0\" \"$@\"");
  const int64_t saved = saved_step(process, place->run());
  ASSERT_GT(saved, 0);
  const rlimit limit{128 << 10, 128 << 10};
  ASSERT_EQ(::prlimit(process.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::io)) << outcome.err;
  for (const std::string part : {"cannot write", "megatrain-scratch", "at byte",
                                 ". Then resume from the checkpoint of step ", "/config.resolved.yaml --resume'"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << ": " << outcome.err;
  EXPECT_TRUE(listing(place.scratch()).empty());
  expect_exact_resume(place, saved);
}

TEST(DiskTier, ADriveThatFlipsBitsEndsTheRunAndTheLastCheckpointIsGood) {
  const DiskPlace place("steps: 1\n");
  Process process(with(place.disk(), kMoreStepsThanAreEverMade));
  const int64_t saved = saved_step(process, place->run());
  ASSERT_GT(saved, 0);
  // bytes flipped between a write and the next read are detected, so keep flipping until the process has ended
  EXPECT_TRUE(eventually([&] { return !flip_scratch(0, 64 << 20, 4096, std::to_string(process.pid())); }));
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::io)) << outcome.err;
  for (const std::string part :
       {"changed", "megatrain-scratch", "at byte", ". Then resume from the checkpoint of step ", "--resume'"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << ": " << outcome.err;
  expect_exact_resume(place, saved);
}

TEST(DiskTier, APlaceThatCannotBeUsedIsRefusedBeforeTheRunDirectoryIsMade) {
  const DiskPlace place("steps: 1\n");
  const auto refused = [&](const Words& words, ExitCode code, std::initializer_list<std::string> parts) {
    Words all = {"train", place->config()};
    all.insert(all.end(), words.begin(), words.end());
    expect_refusal(all, code, parts);
    EXPECT_FALSE(fs::exists(place->run()));
  };
  refused({"--memory.nvme_path=" + (*place / "nothing")}, ExitCode::bad_config, {"memory.nvme_path", "nothing"});
  refused({"--memory.nvme_path=/proc"}, ExitCode::bad_config, {"memory.nvme_path", "/proc"});
  refused({"--memory.nvme_path=" + place.scratch(), "--memory.nvme=900TiB"}, ExitCode::cannot_fit,
          {place.scratch(), "free", "memory.nvme"});
  refused({"--memory.nvme=1GiB"}, ExitCode::bad_config, {"memory.nvme", "memory.nvme_path"});
  refused({place.small(), "--memory.nvme_path=" + place.scratch(), "--memory.nvme=0"}, ExitCode::cannot_fit,
          {"memory.nvme"});
}

TEST(DiskTier, APlanThatKeepsMomentsOnDiskNeedsABudgetForThem) {
  const DiskPlace place("steps: 3\n");
  Words words = place.disk();
  words[0] = "plan";
  const Outcome made = succeed(with(words, "--json"));
  const json plan = json::parse(made.out);
  EXPECT_GT(plan.at("peaks").at("disk"), 0);
  EXPECT_EQ(plan.at("placement").at(10).at("moments"), "disk");
  write_bytes(*place / "plan.json", made.out);
  expect_refusal({"train", place->config(), "--plan=" + (*place / "plan.json")}, ExitCode::cannot_fit,
                 {"on disk", "memory.nvme"});
  succeed({"train", place->config(), "--run_dir=" + (*place / "straight")});
  succeed({"train", place->config(), "--plan=" + (*place / "plan.json"), "--memory.nvme_path=" + place.scratch()});
  expect_same_state(place->run(), *place / "straight");
}

// More checkpoints than any disk holds simulate a small disk.
TEST(RunDisk, ARunThatTheDiskCannotHoldIsRefusedBeforeAnythingIsWritten) {
  const Place place("llama_linear", "steps: 1000000000\ncheckpoint: {every: 1, keep: 1000000000}\n");
  expect_refusal({"train", place.config()}, ExitCode::cannot_fit,
                 {"the disk is too small", place.run(), "checkpoint.keep", "the model", "are free there", "run_dir"});
  EXPECT_FALSE(fs::exists(place.run()));
}

TEST(RunDisk, PlanShowsWhatARunWritesAndRefusesWhatTrainWould) {
  const Place place("llama_linear", "steps: 100\ncheckpoint: {every: 10, keep: 2}\n");
  const std::string text = succeed({"plan", place.config(), "--bytes"}).out;
  EXPECT_NE(text.find("disk: "), std::string::npos) << text;
  EXPECT_NE(text.find("3 checkpoints of "), std::string::npos) << text;
  const json files = json::parse(succeed({"plan", place.config(), "--json"}).out).at("files");
  EXPECT_EQ(files.at("problem"), json());
  EXPECT_EQ(files.at("parts").size(), 2u);

  const Words many = {
      "plan", place.config(), "--checkpoint.keep=1000000000", "--steps=1000000000", "--checkpoint.every=1", "--json"};
  const Outcome refused = megatrain(many);
  EXPECT_EQ(refused.code, static_cast<int>(ExitCode::cannot_fit));
  EXPECT_EQ(json::parse(refused.out).at("fits"), false);
  // the disk of a machine that is not this one is unknown
  EXPECT_EQ(megatrain(with(with(many, "--machine=4090"), "--device=auto")).code, 0);
}

// Files of LLaMA-Factory are such, unless they have save_total_limit and max_steps.
TEST(RunDisk, APlanWhoseNumberOfCheckpointsOnlyTheDataKnowCountsOne) {
  const Place place("llama_linear", "epochs: 3\ncheckpoint: {every: 10, keep: 1000000000}\n");
  const std::string text = succeed({"plan", place.config(), "--bytes"}).out;
  EXPECT_NE(text.find("1 checkpoint of "), std::string::npos) << text;
}

TEST(RunDisk, WhatTheRunSaysItWritesIsWhatItWrites) {
  const Place place("llama_linear", "steps: 6\ncheckpoint: {every: 2, keep: 2}\n");
  const json files = json::parse(succeed({"plan", place.config(), "--json"}).out).at("files");
  succeed({"train", place.config()});
  const auto size = [](const std::string& path) { return static_cast<double>(fs::file_size(path)); };
  EXPECT_NEAR(files.at("parts").at(0).at("bytes").get<double>() / 3,
              size(place.run() + "/checkpoints/step-00000006/state.safetensors"), 96 << 10);
  EXPECT_NEAR(files.at("parts").at(1).at("bytes").get<double>(), size(place.run() + "/model/model.safetensors"),
              96 << 10);
  // existing checkpoints need no additional space
  const json again = json::parse(succeed({"plan", place.config(), "--resume", "--json"}).out).at("files");
  EXPECT_LT(again.at("bytes").get<double>(), files.at("bytes").get<double>() * 0.7);
}

}  // namespace megatrain::cli
