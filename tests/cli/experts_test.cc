// MoE models as users see them: trained, resumed, exported, used for generation.
#include <set>

#include "tests/support/command.h"

namespace megatrain::cli {

TEST(Experts, ARunThatIsResumedEndsWithTheBitsOfOneThatIsNot) {
  for (const char* name : {"qwen3_moe", "mixtral", "gpt_oss_mxfp4"}) {
    const Place place(name, "steps: 6\ncheckpoint.every: 3\n");
    succeed({"train", place.config(), "--run_dir=" + (place / "straight")});
    succeed({"train", place.config(), "--steps=3"});
    succeed({"train", place.config(), "--resume"});
    EXPECT_EQ(read_bytes(place.run() + "/hash.json"), read_bytes(place / "straight" + "/hash.json")) << name;
    EXPECT_EQ(hash_of(place.run() + "/model"), hash_of(place / "straight" + "/model")) << name;
  }
}

// The same values in MXFP4 files, whose experts stay packed, and in bf16 files.
TEST(Experts, FrozenInMxfp4TheyTakeAQuarterAndEndWithTheBitsOfBf16) {
  const Place place("gpt_oss_mxfp4", "steps: 4\ncheckpoint.every: 2\nfreeze: ['*.experts.*']\n");
  succeed({"train", place.config(), "--run_dir=" + (place / "unchanged"), "--steps=1", "--optim.lr=0"});
  const std::string plain = place / "unchanged" + "/model";
  const json packed = json::parse(succeed({"plan", place.config(), "--json"}).out);
  const json whole = json::parse(succeed({"plan", place.config(), "--model.path=" + plain, "--json"}).out);
  EXPECT_LT(packed.at("peaks").at("host"), whole.at("peaks").at("host"));

  succeed({"train", place.config(), "--run_dir=" + (place / "bf16"), "--model.path=" + plain});
  succeed({"train", place.config(), "--run_dir=" + (place / "straight")});
  EXPECT_EQ(hash_of(place / "straight"), hash_of(place / "bf16"));
  EXPECT_EQ(hash_of(place / "straight" + "/model"), hash_of(place / "bf16" + "/model"));
  succeed({"train", place.config(), "--steps=2"});
  succeed({"train", place.config(), "--resume"});
  EXPECT_EQ(hash_of(place.run()), hash_of(place / "straight"));
}

TEST(Experts, ExportsHoldThemInTheFormOfTheFilesBeforeTraining) {
  const auto names_in = [](const std::string& model) {
    std::set<std::string> names;
    const json tensors = hash_of(model).at("tensors");
    for (const auto& [name, hash] : tensors.items()) names.insert(name);
    return names;
  };
  for (const char* name : {"qwen3_5_moe", "qwen3_5_moe_packed", "mistral4"}) {
    const Place place(name, "steps: 2\ncheckpoint.every: 1\ncheckpoint.keep: 3\n");
    const std::set<std::string> before = names_in(golden(name) + "/model");
    succeed({"train", place.config()});
    EXPECT_EQ(names_in(place.run() + "/model"), before) << name;
    succeed({"train", place.config(), "--resume", "--steps=3"});
    EXPECT_EQ(names_in(place.run() + "/model"), before) << name;
    succeed({"export", place.run() + "/checkpoints/step-00000001", "--out", place / "older"});
    EXPECT_EQ(names_in(place / "older"), before) << name;
  }
}

TEST(Experts, AnExportIsTrainedFurther) {
  for (const char* name : {"qwen3_moe_dense", "gpt_oss"}) {
    const Place place(name, "steps: 2\n");
    succeed({"train", place.config()});
    const std::string model = place.run() + "/model";
    succeed({"train", place.config(), "--model.path=" + model, "--run_dir=" + (place / "further")});
    EXPECT_LT(metrics_of(place / "further").front().at("loss"), metrics_of(place.run()).front().at("loss")) << name;
  }
}

TEST(Experts, ALossThatConfigJsonAsksForIsTrainedAndSaidAndStaysInTheExport) {
  Place place("qwen3_moe", "steps: 2\n");
  const Outcome without = succeed({"train", place.config(), "--run_dir=" + (place / "without")});
  EXPECT_EQ(without.err.find("output_router_logits"), std::string::npos) << without.err;
  const std::string config = place.own_model() + "/config.json";
  json object = json::parse(read_bytes(config));
  object["output_router_logits"] = true;
  object["router_aux_loss_coef"] = 0.25;
  write_bytes(config, object.dump());

  const Outcome asked = succeed({"train", place.config()});
  EXPECT_NE(asked.err.find("'output_router_logits' is true"), std::string::npos) << asked.err;
  EXPECT_NE(asked.err.find("0.25"), std::string::npos) << asked.err;
  EXPECT_NE(asked.err.find("  aux "), std::string::npos) << asked.err;
  const json exported = json::parse(read_bytes(place.run() + "/model/config.json"));
  EXPECT_EQ(exported.at("output_router_logits"), true);
  EXPECT_EQ(exported.at("router_aux_loss_coef"), 0.25);
  const json step = metrics_of(place.run()).back().at("experts");
  EXPECT_GE(step.at("aux_loss"), 1.0);  // k if balanced
  EXPECT_FALSE(step.contains("z_loss"));

  // the same coefficient given by the key; and a key that overrides config.json
  succeed({"train", place.config(), "--moe.aux_loss=0.25", "--run_dir=" + (place / "given")});
  EXPECT_EQ(hash_of(place / "given"), hash_of(place.run()));
  const Outcome off = succeed({"train", place.config(), "--moe.aux_loss=0", "--run_dir=" + (place / "off")});
  EXPECT_EQ(off.err.find("output_router_logits"), std::string::npos) << off.err;
  EXPECT_EQ(hash_of(place / "off"), hash_of(place / "without"));
  EXPECT_NE(hash_of(place / "off"), hash_of(place.run()));
  EXPECT_FALSE(metrics_of(place / "off").back().at("experts").contains("aux_loss"));

  // the key asks for the coefficient of a config.json that does not
  object["output_router_logits"] = false;
  write_bytes(config, object.dump());
  const Outcome model = succeed({"train", place.config(), "--moe.aux_loss=model", "--run_dir=" + (place / "asked")});
  EXPECT_NE(model.err.find("moe.aux_loss is model, so the loss that balances the experts is added"), std::string::npos);
  EXPECT_EQ(metrics_of(place / "asked").back().at("loss"), metrics_of(place.run()).back().at("loss"));
  EXPECT_NE(hash_of(place / "asked"), hash_of(place / "off"));
}

TEST(Experts, EveryStepSaysHowTheyAreUsed) {
  const Place place("qwen3_moe_skew", "steps: 2\n");  // three of eight experts have no token
  const Outcome outcome = succeed({"train", place.config()});
  for (const json& step : metrics_of(place.run())) {
    const json& experts = step.at("experts");
    EXPECT_EQ(experts.at("used"), 5.0 / 8);
    EXPECT_GE(experts.at("imbalance"), 8.0 / 5);
    EXPECT_GE(experts.at("imbalance_max"), experts.at("imbalance"));
  }
  EXPECT_NE(outcome.err.find("62.5% of experts used"), std::string::npos) << outcome.err;
  const Place dense("llama_linear", "steps: 1\n");
  EXPECT_EQ(succeed({"train", dense.config()}).err.find("experts"), std::string::npos);
  EXPECT_FALSE(metrics_of(dense.run()).front().contains("experts"));
}

TEST(Experts, LossesOfTheRouterAreExactAfterAResumeAndAnotherCoefficientIsSaid) {
  const Place place("mixtral", "steps: 6\ncheckpoint.every: 3\nmoe: {aux_loss: 0.1, z_loss: 0.01}\n");
  succeed({"train", place.config(), "--run_dir=" + (place / "straight")});
  succeed({"train", place.config(), "--steps=3"});
  succeed({"train", place.config(), "--resume"});
  EXPECT_EQ(read_bytes(place.run() + "/hash.json"), read_bytes(place / "straight" + "/hash.json"));
  const Outcome changed = succeed({"train", place.config(), "--resume", "--steps=7", "--moe.z_loss=0.02"});
  EXPECT_NE(changed.err.find("moe.z_loss was 0.01 in the checkpoint's run, is 0.02 now"), std::string::npos)
      << changed.err;
}

TEST(Experts, LossesOfTheRouterAreRefusedByNameForADenseModel) {
  const std::pair<std::string, std::string> keys[] = {
      {"moe.aux_loss", "moe.aux_loss is 0.01"},
      {"moe.z_loss", "moe.z_loss is 0.01"},
      {"moe_aux_loss_coef", "moe_aux_loss_coef (moe.aux_loss) is 0.01"}};  // LLaMA-Factory's
  for (const auto& [key, said] : keys) {
    const Place place("llama_linear", "steps: 2\n" + key + ": 0.01\n");
    expect_refusal({"train", place.config()}, ExitCode::bad_config, {said, "no layer with experts"});
    EXPECT_FALSE(fs::exists(place.run()));
  }
  const Place place("llama_linear", "steps: 2\nmoe.aux_loss: model\n");
  expect_refusal({"train", place.config()}, ExitCode::bad_config, {"moe.aux_loss is model", "no layer with experts"});
}

}  // namespace megatrain::cli
