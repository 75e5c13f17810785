#include "megatrain/io/new_output.h"
#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

std::string weights_hash(const std::string& directory) { return hash_of(directory).at("weights"); }

// The masters of a checkpoint, by tensor.
json master_hashes(const std::string& checkpoint) {
  json tensors = hash_of(checkpoint + "/state.safetensors").at("tensors");
  for (auto it = tensors.begin(); it != tensors.end();)
    it = it.key().find(".exp_avg") != std::string::npos ? tensors.erase(it) : std::next(it);
  return tensors;
}

}  // namespace

TEST(Export, OfTheLastStepsCheckpointIsTheModelTheRunWrote) {
  Place place("qwen2_tied", "steps: 4\ncheckpoint.every: 4\n");
  const std::string model = place.own_model();
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "LICENSE"}) write_bytes(model + "/" + name, name);
  succeed({"train", place.config(), "--precision=bf16"});
  const Outcome outcome = succeed({"export", place.run(), "--out", place / "out"});
  EXPECT_EQ(outcome.out, (place / "out") + "\n");
  EXPECT_EQ(listing(place / "out"), listing(place.run() + "/model"));
  for (const std::string& name : listing(place / "out"))
    EXPECT_EQ(read_bytes((place / "out") + "/" + name), read_bytes(place.run() + "/model/" + name)) << name;
  expect_no_partial(place.path());
}

TEST(Export, OfAStoppedRunIsItsNewestCheckpoint) {
  const Place place("llama_linear", "steps: 6\ncheckpoint.every: 2\ncheckpoint.keep: 9\n");
  succeed({"train", place.config()});
  fs::remove_all(place.run() + "/model");
  fs::remove(place.run() + "/hash.json");
  fs::remove_all(place.run() + "/checkpoints/step-00000006");
  const json told = json::parse(succeed({"export", place.run(), "--out=" + (place / "newest"), "--json"}).out);
  EXPECT_EQ(told.at("step"), 4);
  succeed({"export", place.run() + "/checkpoints/step-00000004/", "--out", place / "same"});
  succeed({"export", place.run() + "/checkpoints/step-00000002", "--out", place / "older"});
  EXPECT_EQ(weights_hash(place / "newest"), weights_hash(place / "same"));
  EXPECT_NE(weights_hash(place / "newest"), weights_hash(place / "older"));
}

TEST(Export, InFp32HoldsTheMasters) {
  const Place place("qwen2_tied", "steps: 3\ncheckpoint.every: 3\n");
  succeed({"train", place.config(), "--precision=bf16"});
  succeed({"export", place.run(), "--out", place / "wide", "--dtype", "fp32"});
  EXPECT_EQ(hash_of(place / "wide").at("tensors"), master_hashes(place.run() + "/checkpoints/step-00000003"));
  EXPECT_EQ(json::parse(read_bytes((place / "wide") + "/config.json")).at("torch_dtype"), "float32");
  succeed({"export", place.run(), "--out", place / "narrow", "--dtype", "bf16"});
  EXPECT_EQ(weights_hash(place / "narrow"), weights_hash(place.run() + "/model"));
}

TEST(Export, OfAFinishedRunWithoutCheckpointIsItsModel) {
  const Place place("qwen2_tied", "steps: 2\n");
  succeed({"train", place.config()});
  succeed({"export", place.run(), "--out", place / "copy"});
  EXPECT_EQ(weights_hash(place / "copy"), weights_hash(place.run() + "/model"));
  const Outcome outcome = succeed({"export", place.run(), "--out", place / "wide", "--dtype=fp32"});
  EXPECT_NE(outcome.err.find("does not restore the fp32 master"), std::string::npos) << outcome.err;
}

TEST(Export, TakesTheFinishedModelWhenTheLastCheckpointIsOlder) {
  const Place place("llama_linear", "steps: 5\ncheckpoint.every: 2\n");
  succeed({"train", place.config()});
  EXPECT_EQ(json::parse(succeed({"export", place.run(), "--out=" + (place / "out"), "--json"}).out).at("step"), 5);
  EXPECT_EQ(weights_hash(place / "out"), weights_hash(place.run() + "/model"));
}

TEST(Export, NeedsNoSourceModelAndOfAnEarlierMegatrainsRunSaysThatTheTokenizerIsGone) {
  Place place("llama_linear", "steps: 4\ncheckpoint.every: 2\n");
  const std::string model = place.own_model();
  write_bytes(model + "/tokenizer.json", "ids");
  succeed({"train", place.config()});
  fs::remove_all(model);
  fs::remove_all(place.run() + "/model");
  fs::remove(place.run() + "/hash.json");
  succeed({"export", place.run(), "--out", place / "whole"});
  EXPECT_EQ(read_bytes((place / "whole") + "/tokenizer.json"), "ids");
  fs::remove_all(place.run() + "/companions");
  expect_refusal({"export", place.run(), "--out", place / "out"}, ExitCode::io, {"companions is gone", model});
  fs::remove(place.run() + "/companions.json");
  const Outcome outcome = succeed({"export", place.run(), "--out", place / "out"});
  EXPECT_NE(outcome.err.find("no tokenizer files"), std::string::npos) << outcome.err;
}

TEST(Export, RefusesWithASentence) {
  const Place place("llama_linear", "steps: 2\ncheckpoint.every: 2\n");
  succeed({"train", place.config()});
  fs::create_directories(place / "taken");
  expect_refusal({"export", place.run(), "--out", place / "taken"}, ExitCode::bad_config, {"taken", "already"});
  expect_refusal({"export", place.run()}, ExitCode::bad_config, {"--out"});
  expect_refusal({"export", place.run(), "--out", place / "x", "--dtype", "fp8"}, ExitCode::bad_config,
                 {"fp8", "bf16"});
  expect_refusal({"export", place / "nothing", "--out", place / "x"}, ExitCode::bad_input, {"not a run"});
  expect_refusal({"export", golden("llama_linear") + "/model", "--out", place / "x"}, ExitCode::bad_input,
                 {"config.resolved.yaml"});
  expect_refusal({"export", place.run(), "--out", place / "x", "--steps=3"}, ExitCode::bad_config, {"--steps=3"});
  const std::string state = place.run() + "/checkpoints/step-00000002/state.safetensors";
  std::string bytes = read_bytes(state);
  bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 1);
  write_bytes(state, bytes);
  expect_refusal({"export", place.run(), "--out", place / "x"}, ExitCode::corrupt_checkpoint, {"hash"});
  write_bytes(state, bytes.substr(0, 100));
  expect_refusal({"export", place.run(), "--out", place / "x"}, ExitCode::corrupt_checkpoint, {"state.safetensors"});
  fs::remove_all(place.run() + "/checkpoints");
  fs::remove(place.run() + "/hash.json");
  expect_refusal({"export", place.run(), "--out", place / "x"}, ExitCode::bad_input, {"nothing to export yet"});
  EXPECT_FALSE(fs::exists(place / "x"));
  expect_no_partial(place.path());
}

TEST(Export, OfTwoAtOnceToOneNameIsOneWholeDirectory) {
  Place place("qwen2_tied", "steps: 2\ncheckpoint.every: 2\n");
  const std::string model = place.own_model(), out = place / "out";
  for (const char* name : {"tokenizer.json", "LICENSE"}) write_bytes(model + "/" + name, name);
  succeed({"train", place.config()});
  succeed({"export", place.run(), "--out", place / "wide", "--dtype=fp32"});
  succeed({"export", place.run(), "--out", place / "narrow", "--dtype=bf16"});
  for (int round = 0; round < 8; ++round) {
    Process first({"export", place.run(), "--out", out, "--dtype=fp32"});
    Process second({"export", place.run(), "--out", out, "--dtype=bf16"});
    const Outcome wide = first.wait(), narrow = second.wait();
    ASSERT_EQ(std::min(wide.code, narrow.code), 0) << wide.err << narrow.err;
    ASSERT_EQ(std::max(wide.code, narrow.code), 2) << wide.err << narrow.err;
    const std::string whole = place / (wide.code == 0 ? "wide" : "narrow");
    ASSERT_EQ(listing(out), listing(whole));
    for (const std::string& name : listing(out))
      ASSERT_EQ(read_bytes(out + "/" + name), read_bytes(whole + "/" + name)) << name;
    expect_no_partial(place.path());
    fs::remove_all(out);
  }
}

TEST(Export, WaitsForNobodyAndTouchesNothingOfOthers) {
  const Place place("llama_linear", "steps: 1\n");
  succeed({"train", place.config()});
  const std::string out = place / "new/out", partial = out + ".partial";
  const Words words = {"export", place.run(), "--out", out};
  fs::create_directory(place / "new");
  {
    const NewOutput held(out);
    expect_refusal(words, ExitCode::bad_config, {"another export is writing " + out + "; wait for it"});
  }
  fs::create_directory(partial);
  write_bytes(partial + "/config.json", "mine");
  expect_refusal(words, ExitCode::io, {partial, "is not from an unfinished export"});
  EXPECT_EQ(read_bytes(partial + "/config.json"), "mine");
  fs::remove_all(partial);
  fs::create_symlink("nowhere", out);
  expect_refusal(words, ExitCode::bad_config, {out, "already exists"});
  fs::remove(out);
  fs::remove(place / "new");
  succeed(words);
  EXPECT_EQ(listing(place / "new"), std::set<std::string>{"out"});
}

}  // namespace megatrain::cli
