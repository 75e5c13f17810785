// Adapters in the verbs that take a model: by directory, by name in the Hugging Face cache, and broken ones.
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "tests/support/command.h"
#include "tests/support/hub_folder.h"

namespace megatrain::cli {

namespace {

const std::string kAdapter = in_repository("tests/parity/adapter_goldens/llama_bias/adapter");
constexpr const char* kGolden = "llama_bias";

void fill(const HubFolder& hub) {
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"})
    hub.add(name, read_bytes(kAdapter + "/" + name));
  hub.point_main_at("c0ffee");
}

// A copy whose adapter_config.json has another value.
std::string changed_adapter(const TemporaryDirectory& place, const char* field, const json& value) {
  const std::string copy = place / "changed";
  fs::remove_all(copy);
  fs::copy(kAdapter, copy);
  json config = read_json_file(copy + "/adapter_config.json");
  config[field] = value;
  write_bytes(copy + "/adapter_config.json", json_text(config));
  return copy;
}

}  // namespace

TEST(Adapters, HashAndInspectTakeAPeftDirectory) {
  const json shown = json::parse(succeed({"inspect", kAdapter, "--tensors", "--json"}).out);
  const json config = read_json_file(kAdapter + "/adapter_config.json");
  EXPECT_EQ(shown.at("adapter").at("rank"), config.at("r"));
  EXPECT_EQ(shown.at("adapter").at("alpha"), config.at("lora_alpha"));
  EXPECT_EQ(shown.at("weights").at("list").size(), shown.at("weights").at("tensors"));
  EXPECT_GT(shown.at("parameters").at("total"), 0);
  const std::string text = succeed({"inspect", kAdapter}).out;
  EXPECT_NE(text.find(fmt::format("LoRA of rank {}", config.at("r").get<int64_t>())), std::string::npos) << text;
  EXPECT_EQ(hash_of(kAdapter).at("weights"), hash_of(kAdapter + "/adapter_model.safetensors").at("weights"));
}

TEST(Adapters, ExportWithAdapterTakesARunThatTrainsThemAndNoOther) {
  const Place place(kGolden, "steps: 1\n");
  succeed({"train", place.config(), "--adapter.rank=2", "--run_dir=" + (place / "adapted")});
  succeed({"train", place.config(), "--run_dir=" + (place / "whole")});
  succeed({"export", place / "adapted", "--adapter", "--out", place / "out"});
  EXPECT_EQ(hash_of(place / "out").at("weights"), hash_of(place / "adapted/model").at("weights"));
  expect_refusal({"export", place / "whole", "--adapter", "--out", place / "other"}, ExitCode::bad_config,
                 {"--adapter", "whole", "no run that trains adapters"});
  expect_refusal({"export", place / "adapted", "--adapter", "--gguf", "f16", "--out", place / "other"},
                 ExitCode::bad_config, {"--gguf", "RUN/model"});
}

TEST(Adapters, ANameInTheHuggingFaceCacheIsItsDirectory) {
  const HubFolder hub;
  fill(hub);
  const Place place(kGolden, "steps: 2\n");
  const Words base = {"train", place.config()};
  const auto trained = [&](const std::string& adapter, const std::string& run) {
    succeed({"train", place.config(), "--model.adapter=" + adapter, "--optim.lr=1e-4", "--run_dir=" + (place / run)});
    return hash_of(place / run);
  };
  EXPECT_EQ(trained("Org/Name", "by-name"), trained(kAdapter, "by-directory"));
  const std::string resolved = read_bytes(place / "by-name/config.resolved.yaml");
  EXPECT_NE(resolved.find(hub.snapshot()), std::string::npos) << resolved;
  EXPECT_EQ(hash_of("Org/Name").at("weights"), hash_of(kAdapter).at("weights"));
  EXPECT_EQ(json::parse(succeed({"inspect", "Org/Name", "--json"}).out).at("path"), hub.snapshot());
  succeed({"merge", golden(kGolden) + "/model", "Org/Name", "--out", place / "merged"});
  expect_refusal({"train", place.config(), "--model.path=Org/Name"}, ExitCode::bad_input,
                 {"is an adapter (LoRA)", "model.adapter"});
}

TEST(Adapters, AnAbsentOneEndsWithTheDownloadCommand) {
  const HubFolder hub;
  const Place place(kGolden, "steps: 2\n");
  for (const Words& words : {Words{"train", place.config(), "--model.adapter=Org/Name"},
                             Words{"merge", golden(kGolden) + "/model", "Org/Name", "--out", place / "merged"},
                             Words{"generate", "Org/Name", "--prompt=a"}})
    expect_refusal(words, ExitCode::bad_input, {"hf download Org/Name", hub.folder()});
  hub.add("adapter_config.json", read_bytes(kAdapter + "/adapter_config.json"));
  hub.point_main_at("c0ffee");
  for (const Words& words :
       {Words{"train", place.config(), "--model.adapter=Org/Name"}, Words{"generate", "Org/Name", "--prompt=a"}})
    expect_refusal(words, ExitCode::bad_input, {"lacks adapter_model.safetensors", "hf download Org/Name"});
}

TEST(Adapters, WhatIsWrongInThePeftFileIsABadInput) {
  const TemporaryDirectory changed;
  const Place place(kGolden, "steps: 2\n");
  const auto refused = [&](const char* field, const json& value, const std::string& part) {
    const std::string adapter = changed_adapter(changed, field, value);
    expect_refusal({"train", place.config(), "--model.adapter=" + adapter}, ExitCode::bad_input, {part});
    expect_refusal({"merge", golden(kGolden) + "/model", adapter, "--out", place / "merged"}, ExitCode::bad_input,
                   {part});
  };
  refused("target_modules", "((", "adapter_config.json of the adapter: adapter.targets");
  refused("target_modules", {"absent"}, "adapter_config.json of the adapter: its target_modules");
  refused("r", 0.5, "'r' is 0.5");
}

// PEFT raises for these, or takes a default of the family; all-linear and 8 are neither.
TEST(Adapters, APeftFileHasToNameItsTargetsAndItsNumbers) {
  const TemporaryDirectory changed;
  const auto refused = [&](const char* field, const json& value, const std::string& part) {
    expect_refusal({"inspect", changed_adapter(changed, field, value)}, ExitCode::bad_input, {part});
  };
  refused("target_modules", json::array(), "'target_modules' is [], expected names of modules");
  refused("target_modules", nullptr, "'target_modules' is null, expected names of modules");
  for (const char* field : {"r", "lora_alpha", "lora_dropout"})
    refused(field, nullptr, fmt::format("'{}' is null, expected a number", field));
}

TEST(Adapters, AWrongShapeIsBlamedOnTheAdapterAndTheBase) {
  const Place place(kGolden, "steps: 2\n");
  const std::string model = golden("qwen3_norm") + "/model";
  const Outcome outcome = megatrain({"merge", model, kAdapter, "--out", place / "merged"});
  EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::bad_input)) << outcome.err;
  for (const char* part : {"adapter_model.safetensors: tensor ", "adapter_config.json and the base ask for"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find(" config.json"), std::string::npos) << outcome.err;
}

TEST(Adapters, WhatIsGivenInsteadOfAPeftDirectoryIsNamed) {
  const Place place(kGolden, "steps: 1\n");
  const std::string model = golden(kGolden) + "/model";
  expect_refusal({"train", place.config(), "--model.adapter=" + model}, ExitCode::bad_input,
                 {"--model.adapter: model.adapter is " + model + ", a whole model", "expected a PEFT directory",
                  "model.path takes a whole model"});
  expect_refusal({"merge", model, model, "--out", place / "merged"}, ExitCode::bad_input,
                 {model + " is a whole model", "expected a PEFT directory"});
  succeed({"train", place.config(), "--adapter.rank=2", "--run_dir=" + (place / "run")});
  expect_refusal({"train", place.config(), "--model.adapter=" + (place / "run"), "--run_dir=" + (place / "other")},
                 ExitCode::bad_input, {"a run, whose adapters are in " + (place / "run/model")});
}

TEST(Adapters, PickledWeightsAloneEndWithTheCommandThatConvertsThem) {
  const Place place(kGolden, "steps: 2\n");
  const std::string pickled = place / "pickled";
  fs::create_directory(pickled);
  fs::copy(kAdapter + "/adapter_config.json", pickled);
  write_bytes(pickled + "/adapter_model.bin", "PK");
  for (const Words& words : {Words{"train", place.config(), "--model.adapter=" + pickled}, Words{"inspect", pickled},
                             Words{"merge", golden(kGolden) + "/model", pickled, "--out", place / "merged"}})
    expect_refusal(words, ExitCode::bad_input,
                   {pickled + "/adapter_model.bin", "convert it to safetensors: python3 -c"});
  const HubFolder hub;
  for (const char* name : {"adapter_config.json", "adapter_model.bin"}) hub.add(name, read_bytes(pickled + "/" + name));
  hub.point_main_at("c0ffee");
  expect_refusal({"inspect", "Org/Name"}, ExitCode::bad_input, {"adapter_model.bin", "convert it to safetensors"});
  fs::remove(pickled + "/adapter_model.bin");
  expect_refusal({"merge", golden(kGolden) + "/model", pickled, "--out", place / "merged"}, ExitCode::bad_input,
                 {pickled + " has adapter_config.json but no adapter_model.safetensors"});
}

}  // namespace megatrain::cli
