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

TEST(Experts, AnExportIsTrainedFurtherAndAnsweredWith) {
  for (const char* name : {"qwen3_moe_dense", "gpt_oss"}) {
    const Place place(name, "steps: 2\n");
    succeed({"train", place.config()});
    const std::string model = place.run() + "/model";
    succeed({"train", place.config(), "--model.dir=" + model, "--run_dir=" + (place / "further")});
    write_bytes(place / "prompts.jsonl", "{\"ids\": [1, 2, 3, 4]}\n{\"ids\": [5, 6]}\n");
    const Outcome all = succeed({"generate", model, "--prompts", place / "prompts.jsonl", "--max-tokens", "8", "--json"});
    EXPECT_FALSE(all.out.empty());
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
