// Bad input gives the documented exit code and a message that names what is wrong, and leaves nothing behind.
#include <limits>

#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

// Refused before the run directory is created.
void expect_train_refused(const Place& place, ExitCode code, std::initializer_list<std::string> parts,
                          const Words& more = {}) {
  Words words = {"train", place.config()};
  words.insert(words.end(), more.begin(), more.end());
  expect_refusal(words, code, parts);
  EXPECT_FALSE(fs::exists(place.run()));
  expect_no_partial(place.path());
}

// The golden with one field of its config.json changed; null removes it.
void expect_config_refused(const json& changes, std::initializer_list<std::string> parts,
                           const std::string& name = "llama_linear") {
  Place place(name, "steps: 1\n");
  const std::string path = place.own_model() + "/config.json";
  json config = json::parse(read_bytes(path));
  config.update(changes);
  write_bytes(path, config.dump());
  expect_train_refused(place, ExitCode::bad_input, parts);
}

template <class T>
void write_values(const std::string& path, const std::vector<T>& values) {
  write_bytes(path, std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
}

// One element of an fp32 tensor of the model.
void set_weight(const std::string& model, const std::string& tensor, float value) {
  RawSafetensors raw(model + "/model.safetensors");
  std::memcpy(raw.data.data() + raw.header.at(tensor).at("data_offsets")[0].get<size_t>(), &value, sizeof value);
  raw.write(model + "/model.safetensors");
}

// A weight that is finite but so large that results computed from it are not.
void expect_non_finite(const std::string& tensor, float value, const Words& more) {
  Place place("llama_linear", "steps: 3\n");
  set_weight(place.own_model(), tensor, value);
  Words words = {"train", place.config()};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = megatrain(words);
  EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::non_finite)) << outcome.err;
  for (const char* part : {"step 1: ", "loss is not finite in sequence 0 of ", "/tokens.bin, sequence 2 of ",
                           "start again: there is no checkpoint"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << "no '" << part << "' in: " << outcome.err;
  EXPECT_EQ(outcome.out, "");
  for (const char* name : {"model", "hash.json", "checkpoints"})
    EXPECT_FALSE(fs::exists(place.run() + "/" + name)) << name;
  expect_no_partial(place.path());
}

}  // namespace

TEST(BadModel, MissingShard) {
  Place place("llama_packed", "steps: 1\n");
  fs::remove(place.own_model() + "/model-00002-of-00003.safetensors");
  expect_train_refused(place, ExitCode::bad_input, {"model-00002-of-00003.safetensors"});
}

TEST(BadModel, MissingDirectory) {
  const Place place("llama_linear", "steps: 1\n");
  expect_train_refused(place, ExitCode::bad_input, {"model.path", "nowhere does not exist"},
                       {"--model.path=" + (place / "nowhere")});
}

TEST(BadModel, NoWeightsInTheDirectory) {
  Place place("llama_linear", "steps: 1\n");
  const std::string model = place.own_model();
  fs::remove(model + "/model.safetensors");
  expect_train_refused(place, ExitCode::bad_input, {model, "model.safetensors"});
}

TEST(BadModel, TruncatedSafetensors) {
  Place place("llama_linear", "steps: 1\n");
  const std::string file = place.own_model() + "/model.safetensors";
  const std::string whole = read_bytes(file);
  for (const size_t bytes : {size_t{0}, size_t{5}, size_t{100}, whole.size() - 1}) {
    write_bytes(file, whole.substr(0, bytes));
    expect_train_refused(place, ExitCode::bad_input, {file});
  }
}

TEST(BadModel, HeaderLongerThanTheFile) {
  Place place("llama_linear", "steps: 1\n");
  const std::string file = place.own_model() + "/model.safetensors";
  write_bytes(file, length_prefix(uint64_t{1} << 60) + read_bytes(file).substr(8));
  expect_train_refused(place, ExitCode::bad_input, {file});
}

TEST(BadModel, HeaderThatLiesAboutAShape) {
  Place place("llama_linear", "steps: 1\n");
  const std::string file = place.own_model() + "/model.safetensors";
  RawSafetensors raw(file);
  raw.header["model.norm.weight"]["shape"] = {4000};
  raw.write(file);
  expect_train_refused(place, ExitCode::bad_input, {file, "model.norm.weight"});
}

TEST(BadModel, HeaderThatLiesAboutAnOffset) {
  Place place("llama_linear", "steps: 1\n");
  const std::string file = place.own_model() + "/model.safetensors";
  RawSafetensors raw(file);
  for (json& at : raw.header["model.norm.weight"]["data_offsets"]) at = at.get<int64_t>() + (int64_t{1} << 40);
  raw.write(file);
  expect_train_refused(place, ExitCode::bad_input, {file, "model.norm.weight"});
}

TEST(BadModel, MissingTensor) {
  Place place("llama_linear", "steps: 1\n");
  const std::string file = place.own_model() + "/model.safetensors";
  RawSafetensors raw(file);
  raw.header["renamed"] = raw.header["model.norm.weight"];
  raw.header.erase("model.norm.weight");
  raw.write(file);
  expect_train_refused(place, ExitCode::bad_input, {"model.norm.weight"});
}

TEST(BadModel, IntegersForWeights) {
  Place place("llama_linear", "steps: 1\n");
  const std::string file = place.own_model() + "/model.safetensors";
  RawSafetensors raw(file);
  raw.header["model.norm.weight"]["dtype"] = "I32";
  raw.write(file);
  expect_train_refused(place, ExitCode::bad_input, {"model.norm.weight", "I32"});
}

TEST(BadModel, ShapeThatTheConfigDoesNotGive) {
  expect_config_refused({{"intermediate_size", 41}}, {"mlp.gate_proj.weight", "(40, 40)", "(41, 40)"});
}
TEST(BadModel, MoreLayersThanTheFiles) { expect_config_refused({{"num_hidden_layers", 3}}, {"model.layers.2."}); }

TEST(BadModelConfig, NotJson) {
  Place place("llama_linear", "steps: 1\n");
  const std::string path = place.own_model() + "/config.json";
  write_bytes(path, "{\n \"hidden_size\": 40,\n oops\n}");
  expect_train_refused(place, ExitCode::bad_input, {path, "3"});
  write_bytes(path, "[]");
  expect_train_refused(place, ExitCode::bad_input, {path});
}
TEST(BadModelConfig, NegativeLayers) {
  expect_config_refused({{"num_hidden_layers", -2}}, {"config.json", "num_hidden_layers", "-2"});
}
TEST(BadModelConfig, SizesPastAllReason) {
  expect_config_refused({{"num_hidden_layers", int64_t{1} << 40}}, {"num_hidden_layers", "1099511627776"});
  expect_config_refused({{"hidden_size", int64_t{1} << 39}}, {"hidden_size", "549755813888"});
}
TEST(BadModelConfig, FractionalHeads) {
  expect_config_refused({{"num_attention_heads", 2.5}}, {"num_attention_heads", "2.5"});
}
TEST(BadModelConfig, HeadsThatGroupsDoNotDivide) {
  expect_config_refused({{"num_key_value_heads", 3}}, {"num_key_value_heads 3"});
}
TEST(BadModelConfig, UnknownArchitecture) {
  expect_config_refused({{"architectures", {"GPT2LMHeadModel"}}}, {"GPT2LMHeadModel", "LlamaForCausalLM"});
}
TEST(BadModelConfig, UnsupportedRope) {
  expect_config_refused({{"rope_scaling", {{"type", "longrope"}, {"factor", 2.0}}}}, {"longrope", "yarn"});
}
TEST(BadModelConfig, UnknownFieldWithAValue) {
  expect_config_refused({{"attn_logit_softcapping", 50.0}}, {"attn_logit_softcapping", "50"});
}
TEST(BadModelConfig, AnotherActivation) {
  expect_config_refused({{"hidden_act", "gelu"}}, {"hidden_act", "gelu", "silu"});
}
TEST(BadModelConfig, WeightsOfAnotherType) { expect_config_refused({{"torch_dtype", "float8"}}, {"float8"}); }

TEST(BadData, TokenBeyondTheVocabulary) {
  const Place place("llama_linear", "steps: 1\n");
  std::vector<uint32_t> tokens(33 * 6, 5);
  tokens[77] = 64;
  write_values(place / "tokens", tokens);
  expect_train_refused(place, ExitCode::bad_input,
                       {place / "tokens", "token 77", "id 64", "vocabulary has 64", "vocab_size", "config.json"},
                       {"--data.tokens=" + (place / "tokens"), "--data.labels=null"});
}

TEST(BadData, LabelOutOfRange) {
  const Place place("llama_linear", "steps: 1\n");
  std::vector<uint32_t> tokens(33 * 6, 5);
  write_values(place / "tokens", tokens);
  for (const int32_t label : {64, -1, std::numeric_limits<int32_t>::min()}) {
    std::vector<int32_t> labels(33 * 6, -100);
    labels[7] = 3;
    labels[190] = label;
    write_values(place / "labels", labels);
    expect_train_refused(place, ExitCode::bad_input, {place / "labels", "label 190", std::to_string(label)},
                         {"--data.tokens=" + (place / "tokens"), "--data.labels=" + (place / "labels")});
  }
}

TEST(BadData, MissingFile) {
  const Place place("llama_linear", "steps: 1\n");
  expect_train_refused(place, ExitCode::bad_input, {"data.tokens", place / "nothing"},
                       {"--data.tokens", place / "nothing"});
}

TEST(BadData, LabelsOfAnotherLength) {
  const Place place("llama_linear", "steps: 1\n");
  write_values(place / "labels", std::vector<int32_t>(10, 1));
  expect_train_refused(place, ExitCode::bad_input, {place / "labels", "10 labels"},
                       {"--data.labels=" + (place / "labels")});
}

TEST(BadData, DocumentsPastTheEnd) {
  const Place place("llama_packed", "steps: 1\n");
  write_values(place / "documents", std::vector<uint64_t>{0, 5, 1'000'000});
  expect_train_refused(place, ExitCode::bad_input, {place / "documents", "entry 2", "1000000"},
                       {"--data.documents=" + (place / "documents")});
}

TEST(BadData, NothingToTrainInAStep) {
  const Place place("llama_linear", "steps: 1\n");
  write_values(place / "tokens", std::vector<uint32_t>(33 * 6, 5));
  write_values(place / "labels", std::vector<int32_t>(33 * 6, -100));
  expect_refusal(
      {"train", place.config(), "--data.tokens=" + (place / "tokens"), "--data.labels=" + (place / "labels")},
      ExitCode::bad_input, {"step 1", "data.labels"});
  EXPECT_FALSE(fs::exists(place.run() + "/model"));
}

TEST(Budget, TooSmallOnTheDevice) {
  const Place place("llama_linear", "steps: 1\n");
  expect_train_refused(place, ExitCode::cannot_fit, {"host memory", "budget is 64.0 KiB", "memory.gpu"},
                       {"--memory.gpu=64KiB"});
}

TEST(Budget, TooSmallOnTheHost) {
  const Place place("llama_linear", "steps: 1\n");
  expect_train_refused(place, ExitCode::cannot_fit, {"host memory", "budget is 64.0 KiB", "memory.host"},
                       {"--memory.host=64KiB"});
}

TEST(Budget, APlanThatCannotFitSaysSoInJson) {
  for (const char* budget : {"--memory.gpu=1MiB", "--memory.host=1MiB"}) {
    const Outcome outcome = megatrain({"plan", "qwen2.5-7b", "--device=cpu", budget, "--json"});
    EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::cannot_fit));
    const json plan = json::parse(outcome.out);
    EXPECT_EQ(plan.at("fits"), false);
    ASSERT_EQ(plan.at("changes").size(), 1u);
    EXPECT_NE(plan.at("changes")[0].get<std::string>().find("1.00 MiB"), std::string::npos) << plan.at("changes");
  }
}

TEST(BadConfig, CudaWhereThereIsNone) {
  const Place place("llama_linear", "steps: 1\n");
  const Outcome outcome = megatrain({"train", place.config(), "--device=cuda"});
  if (outcome.code == 0) {  // this machine has a GPU, which was used
    EXPECT_NE(outcome.err.find(" on CPU"), outcome.err.find(" on ")) << outcome.err;
    return;
  }
  EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::bad_config));
  EXPECT_NE(outcome.err.find("--device=cpu"), std::string::npos) << outcome.err;
  EXPECT_FALSE(fs::exists(place.run()));
}

TEST(BadConfig, UnknownKeyWithItsLineAndTheNearest) {
  const Place place("llama_linear", "steps: 1\noptim.weight_decey: 0.1\n");
  const std::string text = read_bytes(place.config());
  expect_train_refused(place, ExitCode::bad_config,
                       {fmt::format("{}:{}:", place.config(), std::count(text.begin(), text.end(), '\n')),
                        "optim.weight_decey", "'optim.weight_decay'"});
}

TEST(BadConfig, UnknownOption) {
  const Place place("llama_linear", "steps: 1\n");
  expect_train_refused(place, ExitCode::bad_config, {"--step", "--steps"}, {"--step=3"});
}

TEST(BadConfig, AStepOfTooManyTokens) {
  const Place place("llama_linear", "steps: 1\n");
  expect_train_refused(place, ExitCode::bad_config, {"batch", "from 1 to 65536"},
                       {"--batch=1000000000", "--seq_len=1000000"});
}

TEST(BadConfig, NoConfiguration) {
  expect_refusal({"train"}, ExitCode::bad_config, {"CONFIG.yaml"});
  expect_refusal({"train", "one.yaml", "two.yaml"}, ExitCode::bad_config, {"CONFIG.yaml", "2"});
  expect_refusal({"train", "/nowhere/at-all.yaml"}, ExitCode::bad_config, {"/nowhere/at-all.yaml"});
}

TEST(BadConfig, UnknownVerb) {
  expect_refusal({"trian"}, ExitCode::bad_config, {"trian", "--help"});
  EXPECT_EQ(megatrain({}).code, static_cast<int>(ExitCode::bad_config));
}

TEST(BadConfig, RunDirectoryThatCannotBe) {
  const Place place("llama_linear", "steps: 1\n");
  write_bytes(place / "file", "mine");
  expect_refusal({"train", place.config(), "--run_dir=" + (place / "file/run")}, ExitCode::io, {place / "file/run"});
  expect_refusal({"demo", "--steps=1", "--device=cpu", "--run_dir=" + (place / "file/run")}, ExitCode::io,
                 {place / "file/run"});
  EXPECT_EQ(read_bytes(place / "file"), "mine");
}

TEST(BadConfig, AModelInsideItsOwnRunDirectory) {
  const Place place("llama_linear", "steps: 1\n");
  succeed({"train", place.config()});
  const std::set<std::string> before = listing(place.path());
  for (const Words& more : std::vector<Words>{{}, {"--resume"}, {"--run_dir=" + place.run() + "/../run/"}}) {
    Words words = {"train", place.config(), "--model.path=" + place.run() + "/model"};
    words.insert(words.end(), more.begin(), more.end());
    expect_refusal(words, ExitCode::bad_config, {"model.path", "run_dir"});
  }
  expect_refusal({"train", place.config(), "--model.path=" + place.run() + "/model", "--run_dir=" + place.path()},
                 ExitCode::bad_config, {"run_dir", "not a megatrain run"});
  EXPECT_EQ(listing(place.path()), before);
  succeed({"train", place.config(), "--model.path=" + place.run() + "/model", "--run_dir=" + place.run() + "-2"});
}

TEST(BadConfig, PlanOfAnotherModel) {
  const Place place("llama_linear", "steps: 1\n");
  write_bytes(place / "plan.json", succeed({"plan", place.config(), "--json"}).out);
  const Place other("llama_linear", "steps: 1\n");
  const std::string deep = other / "deep.json";
  json config = json::parse(read_bytes(golden("llama_linear") + "/model/config.json"));
  config["num_hidden_layers"] = 5;
  write_bytes(deep, config.dump());
  expect_train_refused(other, ExitCode::bad_config, {"plan", "2 blocks", "has 5"},
                       {"--plan=" + (place / "plan.json"), "--model.path=null", "--model.config=" + deep});
}

TEST(BadConfig, MemoryStateThatAPlanDoesNotKeepTo) {
  const Place place("llama_linear", "steps: 1\n");
  const auto in_hbm = [](const json& record) { return record.at("state") == "hbm"; };
  json plan, records;
  for (int seed = 0; std::none_of(records.begin(), records.end(), in_hbm); ++seed) {
    ASSERT_LT(seed, 50) << "some random plan keeps state on the device";
    plan =
        json::parse(succeed({"plan", place.config(), "--device=cpu", "--random", std::to_string(seed), "--json"}).out)
            .at("plan");
    records = plan.at("records");
  }
  write_bytes(place / "plan.json", plan.dump());
  expect_train_refused(place, ExitCode::bad_config, {"memory.state is host", "plan.json"},
                       {"--plan=" + (place / "plan.json"), "--memory.state=host"});
}

TEST(BadConfig, PlanThatIsNone) {
  const Place place("llama_linear", "steps: 1\n");
  write_bytes(place / "plan.json", "{\"records\": \"many\"}");
  expect_train_refused(place, ExitCode::bad_config, {place / "plan.json", "experts_per_record"},
                       {"--plan=" + (place / "plan.json")});
  for (const char* text : {"[1, 2]", "a note", ""}) {
    write_bytes(place / "plan.json", text);
    expect_train_refused(place, ExitCode::bad_config, {place / "plan.json"}, {"--plan=" + (place / "plan.json")});
  }
}

TEST(BadConfig, PlanWithSlabsPastAllReason) {
  const Place place("llama_linear", "steps: 1\n");
  json plan = json::parse(succeed({"plan", place.config(), "--json"}).out).at("plan");
  plan["rings"]["gradients_out"] = int64_t{1} << 60;
  write_bytes(place / "plan.json", plan.dump());
  expect_train_refused(place, ExitCode::bad_config, {"gradients_out"}, {"--plan=" + (place / "plan.json")});
}

TEST(NonFinite, AnInfiniteLossStopsTheRunAndNamesStepAndSequences) {
  expect_non_finite("model.norm.weight", 3e38f, {});
}
TEST(NonFinite, WithoutClippingToo) { expect_non_finite("model.norm.weight", 3e38f, {"--optim.clip=0"}); }
TEST(NonFinite, InBfloat16Too) { expect_non_finite("model.norm.weight", 3e38f, {"--precision=bf16"}); }

TEST(BadModel, AWeightThatIsNotFiniteIsRefusedByName) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::string tensor = "model.layers.1.mlp.down_proj.weight";
  for (const auto& [value, text] : {std::pair{infinity, "inf"}, {-infinity, "-inf"}, {nan, "nan"}}) {
    for (const char* precision : {"--precision=fp32", "--precision=bf16"}) {
      Place place("llama_linear", "steps: 1\n");
      const std::string model = place.own_model();
      set_weight(model, tensor, value);
      expect_train_refused(place, ExitCode::bad_input,
                           {model, fmt::format("element 0 of tensor {} is {}", tensor, text)}, {precision});
    }
  }
  Place place("llama_linear", "steps: 1\n");
  set_weight(place.own_model(), tensor, std::numeric_limits<float>::max());
  expect_train_refused(place, ExitCode::bad_input, {tensor, "infinite in bf16", "--precision=fp32"},
                       {"--precision=bf16"});
}

}  // namespace megatrain::cli
