// Mixtures of experts as a person meets them: trained, resumed, exported, answered with.
#include "tests/cli/command.h"

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

TEST(Experts, AnExportIsTrainedFurther) {
  for (const char* name : {"qwen3_moe_dense", "gpt_oss"}) {
    const Place place(name, "steps: 2\n");
    succeed({"train", place.config()});
    const std::string model = place.run() + "/model";
    succeed({"train", place.config(), "--model.path=" + model, "--run_dir=" + (place / "further")});
    EXPECT_LT(metrics_of(place / "further").front().at("loss"), metrics_of(place.run()).front().at("loss")) << name;
  }
}

TEST(Experts, ALossOfTheRouterThatIsAskedForIsRefused) {
  Place place("qwen3_moe", "steps: 2\n");
  const std::string config = place.own_model() + "/config.json";
  json object = json::parse(read_bytes(config));
  object["output_router_logits"] = true;
  write_bytes(config, object.dump());
  expect_refusal({"train", place.config()}, ExitCode::bad_input, {"output_router_logits", "false"});
}

}  // namespace megatrain::cli
