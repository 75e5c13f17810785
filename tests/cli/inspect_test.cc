#include "tests/support/command.h"
#include "tests/support/places.h"

namespace megatrain::cli {

namespace {

json inspected(const std::string& path, const Words& more = {}) {
  Words words = {"inspect", path, "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return json::parse(succeed(words).out);
}

}  // namespace

TEST(Inspect, OfAModelCountsWhatItsFilesHold) {
  const std::string model = golden("qwen2_tied") + "/model";
  const json told = inspected(model, {"--tensors"});
  EXPECT_EQ(told.at("architecture"), "Qwen2ForCausalLM");
  EXPECT_EQ(told.at("supported"), true);
  EXPECT_EQ(told.at("tied"), true);
  int64_t elements = 0, kinds = 0;
  const RawSafetensors raw(model + "/model.safetensors");
  for (const auto& [name, entry] : raw.header.items()) {
    if (name == "__metadata__") continue;
    int64_t matmul = 1;
    for (const json& side : entry.at("shape")) matmul *= side.get<int64_t>();
    elements += matmul;
  }
  for (const auto& [kind, count] : told.at("parameters").at("by_kind").items()) kinds += count.get<int64_t>();
  EXPECT_EQ(told.at("parameters").at("total"), elements);
  EXPECT_EQ(kinds, elements);
  EXPECT_EQ(told.at("active_parameters"), elements);
  EXPECT_EQ(told.at("weights").at("bytes_by_type"), (json{{"BF16", 2 * elements}}));
  EXPECT_EQ(told.at("weights").at("list").size(), told.at("weights").at("tensors"));
  EXPECT_EQ(told.at("training").at("bf16").at("state_bytes"), 12 * elements);
  EXPECT_EQ(told.at("problems"), json::array());
  const std::string text = succeed({"inspect", model, "--tensors"}).out;
  for (const char* part :
       {"Qwen2ForCausalLM", "tied", "model.layers.1.mlp.down_proj.weight", "BF16", "12 bytes a parameter"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(Inspect, OfAModelWithExpertsCountsThemApart) {
  for (const char* name : {"gpt_oss_mxfp4", "qwen3_moe_dense", "mixtral", "qwen3_moe_fp8"}) {
    const json told = inspected(golden(name) + "/model");
    EXPECT_EQ(told.at("supported"), true) << name;
    EXPECT_EQ(told.at("problems"), json::array());
    const json &experts = told.at("experts"), &kinds = told.at("parameters").at("by_kind");
    const int64_t count = experts.at("count"), layers = experts.at("layers"), hidden = told.at("hidden");
    const int64_t ff = experts.at("ff"), bias = told.at("architecture") == "GptOssForCausalLM" ? 1 : 0;
    EXPECT_EQ(kinds.at("experts"), layers * count * (3 * ff * hidden + bias * (2 * ff + hidden)));
    EXPECT_EQ(kinds.at("router"), layers * count * (hidden + bias));
    EXPECT_EQ(kinds.contains("other"), false);
    const int64_t idle = kinds.at("experts").get<int64_t>() / count * (count - experts.at("chosen").get<int64_t>());
    EXPECT_EQ(told.at("active_parameters"), told.at("parameters").at("total").get<int64_t>() - idle -
                                                (told.at("tied") ? 0 : kinds.at("embedding").get<int64_t>()));
  }
  EXPECT_NE(succeed({"inspect", golden("mixtral") + "/model"}).out.find("2 of 4 a token"), std::string::npos);
}

TEST(Inspect, TellsOfTokenizerTemplateAndIds) {
  Place place("llama_linear");
  const std::string model = place.own_model();
  const std::string goldens = in_repository("tests/tokenizer/goldens/");
  fs::copy_file(goldens + "llama3.tokenizer.json", model + "/tokenizer.json");
  write_bytes(model + "/tokenizer_config.json",
              R"({"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"})");
  write_bytes(model + "/generation_config.json", R"({"eos_token_id": [7, 9]})");
  const json told = inspected(model);
  EXPECT_EQ(told.at("tokenizer").at("kind"), "byte-level BPE");
  EXPECT_GT(told.at("tokenizer").at("vocab"), 256);
  EXPECT_EQ(told.at("tokenizer").at("chat_template"), true);
  EXPECT_EQ(told.at("ids").at("eos_token_id"), (json{7, 9}));
  fs::copy_file(goldens + "llama2.tokenizer.json", model + "/tokenizer.json", fs::copy_options::overwrite_existing);
  EXPECT_EQ(inspected(model).at("tokenizer").at("kind"), "BPE with byte fallback");
}

TEST(Inspect, SaysWhatIsWrongWithAModelAndShowsTheRest) {
  Place place("llama_linear");
  const std::string model = place.own_model();
  fs::remove(model + "/model.safetensors");
  write_bytes(model + "/tokenizer.json", "{");
  write_bytes(model + "/tokenizer_config.json", R"({"chat_template": "{% for %}"})");
  json told = inspected(model);
  EXPECT_EQ(told.at("weights"), nullptr);
  EXPECT_EQ(told.at("problems").size(), 3u) << told.at("problems");
  EXPECT_EQ(told.at("tokenizer").at("chat_template"), false);

  json config = json::parse(read_bytes(model + "/config.json"));
  config["architectures"] = {"MysteryForCausalLM"};
  write_bytes(model + "/config.json", config.dump());
  told = inspected(model);
  EXPECT_EQ(told.at("supported"), false);
  EXPECT_EQ(told.at("architecture"), "MysteryForCausalLM");
  EXPECT_NE(succeed({"inspect", model}).out.find("MysteryForCausalLM"), std::string::npos);
}

TEST(Inspect, SaysOfWeightsThatDoNotFitWhatTrainSays) {
  struct Case {
    const char* golden;
    std::string tensor;  // in the file whose header is changed
    std::function<void(json& header, const std::string& tensor)> change;
    Words parts;
  };
  const std::vector<Case> cases = {{"qwen3_moe",
                                    "model.layers.1.mlp.experts.6.up_proj.weight",
                                    [](json& header, const std::string& tensor) {
                                      header["unrelated"] = header.at(tensor);
                                      header.erase(tensor);
                                    },
                                    {"model.layers.1.mlp.experts.6.up_proj.weight", "7 other experts"}},
                                   {"gpt_oss_mxfp4",
                                    "model.layers.1.mlp.experts.gate_up_proj_scales",
                                    [](json& header, const std::string& tensor) {
                                      header.at(tensor).at("shape") = {64, 4, 1};
                                    },
                                    {"model.layers.1.mlp.experts.gate_up_proj_scales", "(64, 4, 1)", "(4, 64, 1)"}},
                                   {"mixtral",
                                    "lm_head.weight",
                                    [](json& header, const std::string&) {
                                      header["model.layers.0.block_sparse_moe.experts.4.w1.weight"] = {
                                          {"dtype", "BF16"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
                                    },
                                    {"experts.4.w1.weight", "beyond the number"}},
                                   {"llama_linear",
                                    "lm_head.weight",
                                    [](json& header, const std::string& tensor) {
                                      json& shape = header.at(tensor).at("shape");
                                      std::swap(shape[0], shape[1]);
                                    },
                                    {"lm_head.weight", "has shape"}}};
  for (const Case& c : cases) {
    Place place(c.golden, "steps: 1\n");
    const std::string model = place.own_model(), index = model + "/model.safetensors.index.json";
    for (const std::string& name : listing(model)) {
      if (!name.ends_with(".safetensors")) continue;
      RawSafetensors raw(model + "/" + name);
      if (!raw.header.contains(c.tensor)) continue;
      c.change(raw.header, c.tensor);
      raw.write(model + "/" + name);
      if (!fs::exists(index)) continue;
      json map = json::parse(read_bytes(index));
      map.at("weight_map").erase(c.tensor);
      write_bytes(index, map.dump());
    }
    const json told = inspected(model);
    ASSERT_EQ(told.at("problems").size(), 1u) << c.golden << told.at("problems");
    const std::string problem = told.at("problems")[0];
    for (const std::string& part : c.parts)
      EXPECT_NE(problem.find(part), std::string::npos) << part << " in " << problem;
    EXPECT_EQ(told.at("supported"), true);
    EXPECT_NE(succeed({"inspect", model}).out.find(problem), std::string::npos) << problem;
    expect_refusal({"train", place.config()}, ExitCode::bad_input, {problem});
  }
}

TEST(Inspect, OfARunTellsWhereItStands) {
  const Place place("llama_linear", "steps: 4\ncheckpoint.every: 2\n");
  succeed({"train", place.config()});
  json told = inspected(place.run());
  EXPECT_EQ(told.at("complete"), true);
  EXPECT_EQ(told.at("step"), 4);
  EXPECT_EQ(told.at("loss"), metrics_of(place.run()).back().at("loss"));
  EXPECT_EQ(told.at("checkpoints").size(), 2u);
  EXPECT_EQ(told.at("architecture"), "LlamaForCausalLM");
  EXPECT_EQ(told.at("model"), place.run() + "/model");

  fs::remove(place.run() + "/hash.json");
  write_bytes(place.run() + "/eval.jsonl", "{\"step\":2,\"loss\":1.5}\n{\"step\":4,\"loss\":1.75}\n");
  write_bytes(place.run() + "/metrics.jsonl", read_bytes(place.run() + "/metrics.jsonl") + "{\"step\":5,\"lo");
  told = inspected(place.run());
  EXPECT_EQ(told.at("complete"), false);
  EXPECT_EQ(told.at("step"), 4);
  EXPECT_EQ(told.at("best_evaluation"), (json{{"step", 2}, {"loss", 1.5}}));
  const std::string here = succeed({"inspect", place.run()}).out;
  EXPECT_NE(here.find("megatrain train " + place.run() + "/config.resolved.yaml --resume\n"), std::string::npos)
      << here;
}

TEST(Inspect, OfACopiedRunPrintsTheCommandThatGoesOnWithTheCopy) {
  const Place place("llama_linear", "steps: 2\ncheckpoint.every: 1\n");
  succeed({"train", place.config()});
  const std::string copy = place / "a copy";
  fs::copy(place.run(), copy, fs::copy_options::recursive);
  fs::remove(copy + "/hash.json");
  const std::string said = succeed({"inspect", copy}).out;
  const std::string command = fmt::format("train '{}/config.resolved.yaml' --resume --run_dir='{}'\n", copy, copy);
  ASSERT_NE(said.find(command), std::string::npos) << said;
  const std::string original = read_bytes(place.run() + "/metrics.jsonl");
  succeed({"train", copy + "/config.resolved.yaml", "--resume", "--run_dir=" + copy, "--steps=3"});
  EXPECT_EQ(read_bytes(place.run() + "/metrics.jsonl"), original);
  EXPECT_EQ(metrics_of(copy).size(), 3u);
}

TEST(Inspect, RefusesWithASentence) {
  const Place place;
  fs::create_directories(place / "empty");
  write_bytes(place / "file", "");
  expect_refusal({"inspect", place / "nothing"}, ExitCode::bad_input, {"not there", "Org/Name"});
  expect_refusal({"inspect", place / "file"}, ExitCode::bad_input, {"not a directory"});
  expect_refusal({"inspect", place / "empty"}, ExitCode::bad_input, {"config.json"});
  expect_refusal({"inspect"}, ExitCode::bad_config, {"MODEL or RUN"});
  write_bytes(place / "empty/config.json", "[1]");
  expect_refusal({"inspect", place / "empty"}, ExitCode::bad_input, {"config.json", "not a JSON object"});
}

}  // namespace megatrain::cli
