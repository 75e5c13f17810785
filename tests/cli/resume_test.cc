// Stop, save, resume: an interrupted run ends with the same bits as an uninterrupted one.
#include "megatrain/io/sealed_json.h"
#include "megatrain/run/checkpoints.h"
#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

// For every step, the numbers determined by the maths and not by the clock.
std::vector<std::string> numbers_of(const std::string& run) {
  std::vector<std::string> lines;
  for (const json& m : metrics_of(run)) {
    lines.push_back(fmt::format("{} {:.17g} {:.17g} {:.17g} {:.17g}", m.at("step").dump(), m.at("loss").get<double>(),
                                m.at("grad_norm").get<double>(), m.at("clip_factor").get<double>(),
                                m.at("lr").get<double>()));
  }
  return lines;
}

std::string newest_checkpoint_of(const std::string& run) {
  const std::set<std::string> names = listing(run + "/checkpoints");
  return names.empty() ? "" : run + "/checkpoints/" + *names.rbegin();
}

void expect_same_end(const std::string& run, const std::string& straight) {
  EXPECT_EQ(read_bytes(run + "/hash.json"), read_bytes(straight + "/hash.json"));
  EXPECT_EQ(numbers_of(run), numbers_of(straight));
  EXPECT_EQ(hash_of(run + "/model"), hash_of(straight + "/model"));
}

void expect_signal_saves_and_resume_is_exact(int signal, const std::string& precision) {
  constexpr int64_t kSteps = 300;
  const Place place("qwen3_norm", fmt::format("steps: {}\n", kSteps));
  const std::string type = "--precision=" + precision, schedule = "--optim.schedule=cosine";

  succeed({"train", place.config(), type, schedule, "--run_dir=" + (place / "straight")});
  Process process({"train", place.config(), type, schedule, "--json"});
  ASSERT_TRUE(eventually(
      [&] { return read_bytes(place.run() + "/metrics.jsonl").find("\n{\"step\":3,") != std::string::npos; }));
  process.signal(signal);
  const Outcome stopped = process.wait();
  ASSERT_EQ(stopped.code, 128 + signal) << stopped.err;
  const json result = json::parse(stopped.out);
  const int64_t step = result.at("step");
  EXPECT_GE(step, 3);
  EXPECT_LT(step, kSteps);
  EXPECT_TRUE(result.at("model").is_null());
  EXPECT_FALSE(fs::exists(place.run() + "/model"));
  EXPECT_EQ(newest_checkpoint_of(place.run()), fmt::format("{}/checkpoints/step-{:08d}", place.run(), step));
  EXPECT_EQ(hash_of(place.run()).at("step"), step);
  expect_no_partial(place.run());

  const Outcome resumed = succeed({"train", place.config(), type, schedule, "--resume"});
  EXPECT_NE(resumed.err.find("resumed from"), std::string::npos) << resumed.err;
  EXPECT_EQ(resumed.err.find("step 1/"), std::string::npos) << resumed.err;
  expect_same_end(place.run(), place / "straight");
}

// A run of 4 steps with checkpoints; tests may damage the newest.
std::string checkpointed_run(const Place& place) {
  succeed({"train", place.config(), "--checkpoint.every=2"});
  EXPECT_EQ(listing(place.run() + "/checkpoints"), (std::set<std::string>{"step-00000002", "step-00000004"}));
  return newest_checkpoint_of(place.run());
}

void flip_byte(const std::string& path, size_t from_end) {
  std::string bytes = read_bytes(path);
  bytes[bytes.size() - from_end] = static_cast<char>(bytes[bytes.size() - from_end] ^ 1);
  write_bytes(path, bytes);
}

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST(Resume, IsExactAfterSigterm) { expect_signal_saves_and_resume_is_exact(SIGTERM, "fp32"); }
TEST(Resume, IsExactAfterSighup) { expect_signal_saves_and_resume_is_exact(SIGHUP, "fp32"); }
TEST(Resume, IsExactAfterSigintInBfloat16) { expect_signal_saves_and_resume_is_exact(SIGINT, "bf16"); }

TEST(Resume, IsExactAfterAKillBetweenCheckpoints) {
  const Place place("llama_linear", "steps: 300\nmicro_batch: 2\ncheckpoint.every: 10\n");
  succeed({"train", place.config(), "--checkpoint.every=0", "--run_dir=" + (place / "straight")});
  Process process({"train", place.config()});
  ASSERT_TRUE(eventually(
      [&] { return read_bytes(place.run() + "/metrics.jsonl").find("\n{\"step\":25,") != std::string::npos; }));
  process.signal(SIGKILL);
  ASSERT_EQ(process.wait().code, -SIGKILL);
  succeed({"train", place.config(), "--resume"});
  expect_same_end(place.run(), place / "straight");
}

TEST(Resume, ACompleteRunGoesOnToMoreSteps) {
  const Place place("llama_linear", "steps: 4\n");
  succeed({"train", place.config(), "--steps=6", "--run_dir=" + (place / "straight")});
  checkpointed_run(place);
  succeed({"train", place.config(), "--steps=6", "--resume"});
  expect_same_end(place.run(), place / "straight");

  // config.resolved.yaml reproduces the whole run, in the same place
  succeed({"train", place.run() + "/config.resolved.yaml"});
  expect_same_end(place.run(), place / "straight");
  EXPECT_TRUE(fs::exists(place / "run.1/hash.json"));
}

TEST(Resume, HashOfARunThatGoesOnIsNotTheFormerEnds) {
  const Place place("llama_linear", "steps: 4\n");
  checkpointed_run(place);
  Process process({"train", place.config(), "--steps=100000", "--resume"});
  ASSERT_TRUE(eventually(
      [&] { return read_bytes(place.run() + "/metrics.jsonl").find("\n{\"step\":8,") != std::string::npos; }));
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait().code, 128 + SIGTERM);
  EXPECT_GE(hash_of(place.run()).at("step"), 8);
}

TEST(Resume, WithoutACheckpointStartsFromTheBeginning) {
  const Place place("llama_linear", "steps: 2\n");
  const Outcome outcome = succeed({"train", "--resume", place.config()});
  EXPECT_NE(outcome.err.find("no checkpoint in " + place.run() + ": starting from the beginning"), std::string::npos)
      << outcome.err;
  EXPECT_EQ(metrics_of(place.run()).size(), 2u);
  const Place plain("llama_linear", "steps: 2\n");
  EXPECT_EQ(succeed({"train", plain.config()}).err.find("from the beginning"), std::string::npos);
  EXPECT_EQ(hash_of(place.run()), hash_of(plain.run()));
  EXPECT_FALSE(fs::exists(place / "run.1"));
}

TEST(Resume, RefusesAnotherMicroBatchByName) {
  const Place place("llama_linear", "steps: 4\n");
  checkpointed_run(place);
  const std::string before = read_bytes(place.run() + "/hash.json");
  expect_refusal({"train", place.config(), "--resume", "--micro_batch=3"}, ExitCode::bad_config,
                 {"micro_batch = 6", "has 3"});
  expect_refusal({"train", place.config(), "--resume", "--precision=bf16"}, ExitCode::bad_config,
                 {"precision", "fp32", "bf16"});
  EXPECT_EQ(read_bytes(place.run() + "/hash.json"), before);
}

TEST(Resume, SaysWhenTheLibraryIsAnotherAndGoesOn) {
  const Place place("llama_linear", "steps: 4\n");
  const std::string file = checkpointed_run(place) + "/checkpoint.json";
  json checkpoint = json::parse(read_bytes(file));
  const std::string library = checkpoint.at("identity").at("library");
  EXPECT_EQ(library.rfind("cpu ", 0), 0u) << library;
  EXPECT_EQ(json::parse(read_bytes(place.run() + "/identity.json")), checkpoint.at("identity"));
  EXPECT_EQ(succeed({"train", place.config(), "--resume", "--steps=5"}).err.find("bit-exact"), std::string::npos);

  checkpoint["identity"]["library"] = "GPU 7, cuBLASLt 1";
  write_bytes(file, sealed(checkpoint).dump());
  const Outcome outcome = succeed({"train", place.config(), "--resume", "--steps=5"});
  EXPECT_NE(outcome.err.find("cannot be bit-exact: GPU 7, cuBLASLt 1 became " + library), std::string::npos)
      << outcome.err;
}

TEST(Resume, ASignalDuringAStepThatIsSavedAnywaySavesItOnce) {
  const Place place("llama_linear", "steps: 100000\ncheckpoint.every: 1\ncheckpoint.keep: 1\n");
  Process process({"train", place.config(), "--json"});
  ASSERT_TRUE(eventually([&] {
    const auto all = list_checkpoints(place.run());
    return !all.empty() && all.back().first >= 2;
  }));
  process.signal(SIGTERM);
  const Outcome stopped = process.wait();
  ASSERT_EQ(stopped.code, 128 + SIGTERM) << stopped.err;
  const int64_t step = json::parse(stopped.out).at("step");
  EXPECT_EQ(count(stopped.err, fmt::format("saving a checkpoint of step {}\n", step)), 1) << stopped.err;
  EXPECT_EQ(listing(place.run() + "/checkpoints"), (std::set<std::string>{fmt::format("step-{:08d}", step)}));
}

TEST(Resume, ASecondOwnerIsRefusedAndTheFirstEndsAsIfAlone) {
  const Place place("qwen3_norm", "steps: 100000\n");
  Process first({"train", place.config()});
  ASSERT_TRUE(eventually([&] { return read_bytes(place.run() + "/metrics.jsonl").find('\n') != std::string::npos; }));
  const std::string owner =
      fmt::format("pid {} on host ", json::parse(read_bytes(place.run() + "/lock")).at("pid").get<int64_t>());
  expect_refusal({"train", place.config()}, ExitCode::bad_config, {place.run(), owner, "--run_dir"});
  expect_refusal({"train", place.config(), "--resume"}, ExitCode::bad_config, {place.run(), owner});
  expect_refusal({"demo", "--run_dir=" + place.run(), "--steps=1"}, ExitCode::bad_config, {place.run(), owner});
  first.signal(SIGTERM);
  ASSERT_EQ(first.wait().code, 128 + SIGTERM);
  const json ended = hash_of(place.run());
  const std::string straight = place / "straight", steps = "--steps=" + ended.at("step").dump();
  succeed({"train", place.config(), steps, "--run_dir=" + straight});
  EXPECT_EQ(ended.at("state"), hash_of(straight).at("state"));
  EXPECT_EQ(numbers_of(place.run()), numbers_of(straight));
  EXPECT_FALSE(fs::exists(place / "run.1"));
  EXPECT_FALSE(fs::exists(place.run() + "/lock"));
}

TEST(Resume, OfACheckpointOfVersion1IsExactAndSaysSo) {
  const Place place("llama_linear", "steps: 4\n");
  succeed({"train", place.config(), "--steps=6", "--run_dir=" + (place / "straight")});
  const std::string file = checkpointed_run(place) + "/checkpoint.json";
  json checkpoint = json::parse(read_bytes(file));
  for (const char* key : {"version", "files", "checksum"}) checkpoint.erase(key);
  write_bytes(file, checkpoint.dump(1) + "\n");
  const Outcome outcome = succeed({"train", place.config(), "--steps=6", "--resume"});
  EXPECT_NE(outcome.err.find("step-00000004 is of version 1"), std::string::npos) << outcome.err;
  expect_same_end(place.run(), place / "straight");
}

TEST(Resume, FallsBackToTheOlderCheckpointAndNamesBoth) {
  using Damage = std::function<void(const std::string&)>;
  const Place straight("llama_linear", "steps: 4\n");
  succeed({"train", straight.config()});
  for (const Damage& damage :
       std::vector<Damage>{[](const std::string& path) { flip_byte(path + "/state.safetensors", 1000); },
                           [](const std::string& path) { fs::resize_file(path + "/state.safetensors", 5000); },
                           [](const std::string& path) { write_bytes(path + "/checkpoint.json", "{\"step\": 4,"); }}) {
    const Place place("llama_linear", "steps: 4\n");
    damage(checkpointed_run(place));
    const Outcome outcome = succeed({"train", place.config(), "--resume"});
    for (const char* part : {"step-00000004: the checkpoint is damaged", "step-00000004 is damaged and stays",
                             "resumed from", "step-00000002"})
      EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " in " << outcome.err;
    EXPECT_EQ(outcome.err.find("remove"), std::string::npos) << outcome.err;
    EXPECT_EQ(listing(place.run() + "/checkpoints"), (std::set<std::string>{"step-00000002", "step-00000004"}));
    expect_same_end(place.run(), straight.run());
  }
}

TEST(Resume, IsRefusedWhenTheOnlyCheckpointIsDamaged) {
  using Damage = std::function<void(const std::string&)>;
  for (const Damage& damage :
       std::vector<Damage>{[](const std::string& path) { flip_byte(path + "/state.safetensors", 1000); },
                           [](const std::string& path) { fs::remove(path + "/state.safetensors"); },
                           [](const std::string& path) {
                             json checkpoint = json::parse(read_bytes(path + "/checkpoint.json"));
                             checkpoint["step"] = -5;
                             write_bytes(path + "/checkpoint.json", checkpoint.dump());
                           }}) {
    const Place place("llama_linear", "steps: 4\n");
    succeed({"train", place.config(), "--checkpoint.every=4"});
    damage(newest_checkpoint_of(place.run()));
    const std::string before = read_bytes(place.run() + "/metrics.jsonl");
    expect_refusal({"train", place.config(), "--resume", "--steps=6"}, ExitCode::corrupt_checkpoint,
                   {"step-00000004", "no intact checkpoint"});
    EXPECT_EQ(read_bytes(place.run() + "/metrics.jsonl"), before);
    EXPECT_EQ(listing(place.run() + "/checkpoints"), (std::set<std::string>{"step-00000004"}));
  }
}

TEST(Resume, WithAnotherNumberOfLayersBlamesTheConfiguration) {
  Place place("llama_linear", "steps: 4\n");
  const std::string config = place.own_model() + "/config.json";
  checkpointed_run(place);
  json model = json::parse(read_bytes(config));
  model["num_hidden_layers"] = model.at("num_hidden_layers").get<int64_t>() - 1;
  write_bytes(config, model.dump());
  const Outcome outcome = megatrain({"train", place.config(), "--resume"});
  EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::bad_config)) << outcome.err;
  EXPECT_NE(outcome.err.find("step-00000004"), std::string::npos) << outcome.err;
  for (const char* part : {"damaged", "remove"}) EXPECT_EQ(outcome.err.find(part), std::string::npos) << outcome.err;
}

TEST(Resume, AStateThatCannotBeOpenedIsAnErrorOfTheDisk) {
  const Place place("llama_linear", "steps: 4\n");
  const std::string file = checkpointed_run(place) + "/state.safetensors";
  fs::remove(file);
  fs::create_symlink("state.safetensors", file);
  expect_refusal({"train", place.config(), "--resume"}, ExitCode::io, {file, "symbolic links"});
}

TEST(Resume, GoesOnFromACompleteCheckpointThatLacksItsName) {
  const Place place("llama_linear", "steps: 4\n");
  succeed({"train", place.config(), "--steps=6", "--run_dir=" + (place / "straight")});
  const std::string checkpoint = checkpointed_run(place);
  fs::rename(checkpoint, checkpoint + ".partial");
  fs::create_directories(place.run() + "/model.partial");
  const Outcome outcome = succeed({"train", place.config(), "--steps=6", "--resume"});
  EXPECT_NE(outcome.err.find("resumed from " + checkpoint + "\n"), std::string::npos) << outcome.err;
  expect_same_end(place.run(), place / "straight");
  expect_no_partial(place.run());
}

}  // namespace megatrain::cli
