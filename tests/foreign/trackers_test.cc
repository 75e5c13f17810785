// Keys of other trainers that report a run to a tracker become `track`.
#include "megatrain/foreign/trackers.h"

#include "tests/support/axolotl_examples.h"
#include "tests/support/foreign_file.h"

namespace megatrain {
namespace {

using Names = std::vector<std::string>;

const std::string kOwn = "model.path: m\ndata.tokens: t\nsteps: 3\n";

TrainConfig own(const std::string& text) { return parse_config(kOwn + text, "ours.yaml"); }

TEST(Trackers, OfTheHuggingFaceTrainerAreThoseOfReportTo) {
  const TrainConfig config =
      parse(with(supervised(), {{"report_to", "[wandb, tensorboard]"}, {"run_name", "first"}, {"project", "chat"}}));
  EXPECT_EQ(config.track.to, (Names{"wandb", "tensorboard"}));
  EXPECT_EQ(config.track.name, "first");
  EXPECT_EQ(config.track.project, "chat");
  for (const char* none : {"none", "all", "null", "[]"})
    EXPECT_EQ(parse(with(supervised(), {{"report_to", none}, {"run_name", "first"}})).track, TrainConfig::Track{})
        << none;
  EXPECT_EQ(own("report_to: mlflow\n").track.to, Names{"mlflow"}) << "in a file of ours";
}

TEST(Trackers, ThatNoScriptFollowsARunForAreWarnedOfInTheirFilesAndRefusedInOurs) {
  const Keys theirs = with(supervised(), {{"report_to", "[swanlab, wandb]"}});
  EXPECT_TRUE(has(logged(theirs), "report_to names swanlab, which no script follows a run for"));
  EXPECT_EQ(parse(theirs).track.to, Names{"wandb"});
  EXPECT_TRUE(
      has(refusal(with(supervised(), {{"report_to", "wandbb"}})), "report_to is 'wandbb', expected none or some"));
  const auto refused = [](const std::string& text) { return refused_with(ExitCode::bad_config, [&] { own(text); }); };
  EXPECT_TRUE(
      has(refused("report_to: swanlab\n"), "ours.yaml:4: report_to is 'swanlab', expected none or some of wandb"));
  EXPECT_TRUE(
      has(refused("track.to: [wandb, comet]\n"), "expected none or some of wandb, mlflow, trackio, tensorboard"));
  EXPECT_TRUE(has(refused("track.to: [wandb, wandb]\n"), "expected none or some"));
  EXPECT_TRUE(has(refused("track.to: wandb\nreport_to: mlflow\n"), "keep one"));
}

TEST(Trackers, OfAxolotlAreEnabledByTheirProjects) {
  const auto track = [](const Keys& keys) { return parse(with(axolotl_full(), keys)).track; };
  const TrainConfig::Track wandb = track({{"wandb_project", "chat"}, {"wandb_name", "first"}, {"wandb_entity", "us"}});
  EXPECT_EQ(wandb.to, Names{"wandb"});
  EXPECT_EQ(wandb.project, "chat");
  EXPECT_EQ(wandb.name, "first");
  EXPECT_EQ(track({{"mlflow_experiment_name", "chat"}, {"use_tensorboard", "true"}}).to,
            (Names{"mlflow", "tensorboard"}));
  EXPECT_EQ(track({{"use_trackio", "true"}, {"trackio_project_name", "chat"}}).project, "chat");
  for (const Keys& off : {Keys{{"wandb_project", ""}}, Keys{{"use_wandb", "false"}, {"wandb_project", "chat"}},
                          Keys{{"wandb_project", "chat"}, {"wandb_mode", "disabled"}}, Keys{{"wandb_name", "first"}}})
    EXPECT_EQ(track(off), TrainConfig::Track{}) << yaml_of(off);
}

}  // namespace
}  // namespace megatrain
