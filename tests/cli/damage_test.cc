// What hash, inspect and export report for damaged checkpoints and models.
#include "megatrain/run/best_record.h"
#include "tests/support/command.h"
#include "tests/support/flip_byte.h"

namespace megatrain::cli {

TEST(Damage, OfACheckpointIsFoundByHashInspectAndExport) {
  const Place place("llama_linear", "steps: 4\n");
  succeed({"train", place.config(), "--checkpoint.every=2"});
  const std::string checkpoint = place.run() + "/checkpoints/step-00000004", state = checkpoint + "/state.safetensors";
  EXPECT_EQ(hash_of(checkpoint), hash_of(place.run()));
  EXPECT_EQ(hash_of(checkpoint).at("step"), 4);
  const std::string whole = read_bytes(state);
  flip_byte(state, 1000);
  for (const std::string& path : {checkpoint, place.run()})
    expect_refusal({"hash", path}, ExitCode::corrupt_checkpoint, {"step-00000004", "hash"});
  expect_refusal({"export", place.run(), "--out", place / "x"}, ExitCode::corrupt_checkpoint, {"step-00000004"});
  fs::remove(place.run() + "/hash.json");  // as in a run that has not finished
  expect_refusal({"hash", place.run()}, ExitCode::corrupt_checkpoint, {"step-00000004", "hash"});

  for (const bool cut : {true, false}) {
    write_bytes(state, cut ? whole.substr(0, whole.size() - 1) : whole);
    if (!cut) flip_byte(checkpoint + "/checkpoint.json", 30);
    const Outcome outcome = megatrain({"inspect", place.run(), "--json"});
    EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::corrupt_checkpoint)) << outcome.err;
    EXPECT_NE(outcome.err.find("step-00000004: the checkpoint is damaged"), std::string::npos) << outcome.err;
    const json checkpoints = json::parse(outcome.out).at("checkpoints");
    EXPECT_FALSE(checkpoints.at(0).contains("damage"));
    EXPECT_TRUE(checkpoints.at(1).contains("damage"));
    for (const std::string& path : {checkpoint, place.run()})
      expect_refusal({"hash", path}, ExitCode::corrupt_checkpoint, {"step-00000004"});
  }
}

TEST(Damage, OfTheModelIsFoundByHashAndExport) {
  const Place place("qwen2_tied", "steps: 2\n");
  succeed({"train", place.config()});
  const std::string shard = place.run() + "/model/model.safetensors", whole = read_bytes(shard);
  EXPECT_EQ(json::parse(read_bytes(place.run() + "/hash.json")).at("model"),
            hash_of(place.run() + "/model").at("weights"));
  flip_byte(shard, 100);
  expect_refusal({"export", place.run(), "--out", place / "x"}, ExitCode::bad_input, {"run/model", "damaged"});
  expect_refusal({"hash", place.run()}, ExitCode::bad_input, {"run/model", "damaged"});
  write_bytes(shard, whole.substr(0, whole.size() - 10));
  expect_refusal({"export", place.run(), "--out", place / "x"}, ExitCode::bad_input, {"model.safetensors"});
  write_bytes(shard, whole);
  succeed({"hash", place.run()});
  const std::string hash = place.run() + "/hash.json";
  std::string text = read_bytes(hash);
  const size_t digit = text.find("\"state\": \"") + 12;
  text[digit] = text[digit] == '0' ? '1' : '0';
  write_bytes(hash, text);
  expect_refusal({"hash", place.run()}, ExitCode::bad_input, {"hash.json", "checksum"});
  EXPECT_FALSE(fs::exists(place / "x"));
}

TEST(Damage, OfTheModelOrTheBestModelIsFoundByTheirOwnHash) {
  const Place place("qwen2_tied", "steps: 2\n");
  succeed({"train", place.config()});
  fs::copy(place.run() + "/model", place.run() + "/best", fs::copy_options::recursive);
  write_best_record(place.run(), {.step = 1, .loss = 1.5, .weights = hash_of(place.run() + "/model").at("weights")});
  for (const std::string& model : {place.run() + "/best", place.run() + "/model"}) {
    succeed({"hash", model});
    flip_byte(model + "/model.safetensors", 100);
    expect_refusal({"hash", model}, ExitCode::bad_input, {model, "damaged"});
  }
}

TEST(Damage, AFileOfTheRunThatCannotBeReadIsAnErrorOfTheDisk) {
  const Place place("llama_linear", "steps: 2\n");
  succeed({"train", place.config()});
  const std::string run = place.run(), config = run + "/config.resolved.yaml", metrics = run + "/metrics.jsonl";
  const std::vector<Words> commands = {{"inspect", run}, {"report", run}, {"export", run, "--out", place / "x"}};
  fs::rename(config, place / "kept");
  for (const bool loop : {false, true}) {  // root can read everything else
    if (loop) fs::create_symlink("config.resolved.yaml", config);
    if (!loop) fs::create_directory(config);
    for (const Words& words : commands) expect_refusal(words, ExitCode::io, {config});
    fs::remove(config);
  }
  fs::rename(place / "kept", config);
  fs::remove(metrics);
  fs::create_directory(metrics);
  for (const Words& words : {commands[0], commands[1]}) expect_refusal(words, ExitCode::io, {metrics});
  EXPECT_FALSE(fs::exists(run + "/report.html"));
  EXPECT_FALSE(fs::exists(place / "x"));
}

TEST(Damage, AnEmptiedConfigurationIsNamedAndNoDefaultsAreShownInItsPlace) {
  const Place place("llama_linear", "steps: 2\n");
  succeed({"train", place.config()});
  const std::string config = place.run() + "/config.resolved.yaml";
  for (const char* text : {"", "\n \n"}) {
    write_bytes(config, text);
    for (const Words& words :
         {Words{"inspect", place.run()}, {"report", place.run()}, {"export", place.run(), "--out", place / "x"}})
      expect_refusal(words, ExitCode::io, {config, "damaged"});
  }
}

TEST(Damage, AnEmptiedModelConfigIsNamedWithItsCopy) {
  const Place place("llama_linear", "steps: 2\n");
  succeed({"train", place.config()});
  const std::string config = place.run() + "/model_config.json", copy = place.run() + "/companions/config.json";
  write_bytes(config, "");
  for (const Words& words : {Words{"inspect", place.run()}, {"export", place.run(), "--out", place / "x"}})
    expect_refusal(words, ExitCode::bad_input, {config, "empty", copy});
  const Outcome outcome = succeed({"report", place.run()});
  EXPECT_NE(outcome.err.find("model_config.json"), std::string::npos) << outcome.err;
  fs::copy_file(copy, config, fs::copy_options::overwrite_existing);
  succeed({"export", place.run(), "--out", place / "x"});
}

TEST(Damage, ACompleteRunWhoseModelIsGoneIsNotCalledUnfinished) {
  const Place place("llama_linear", "steps: 3\ncheckpoint.every: 2\n");
  succeed({"train", place.config()});
  fs::rename(place.run() + "/model", place / "moved");
  const std::string gone = place.run() + "/model, is gone";
  const Words generate = {"generate", place.run(), "--prompt=a"};
  expect_refusal(generate, ExitCode::bad_input, {"complete", gone, "of step 2", "--resume"});
  const Outcome told = succeed({"inspect", place.run(), "--json"});
  EXPECT_NE(told.err.find(gone), std::string::npos) << told.err;
  EXPECT_EQ(json::parse(told.out).at("complete"), true);
  EXPECT_EQ(json::parse(told.out).at("model"), nullptr);
  EXPECT_EQ(succeed({"inspect", place.run()}).out.find("not complete"), std::string::npos);
  EXPECT_NE(succeed({"export", place.run(), "--out", place / "older"}).err.find(gone), std::string::npos);
  fs::remove_all(place.run() + "/checkpoints");
  for (const Words& words : {generate, {"export", place.run(), "--out", place / "x"}})
    expect_refusal(words, ExitCode::bad_input, {"complete", gone});
}

}  // namespace megatrain::cli
