#include "megatrain/run/trackers.h"

#include <gtest/gtest.h>

#include "tests/support/fixtures.h"
#include "tests/support/places.h"

namespace megatrain {
namespace {

TEST(Trackers, EachNameHasACommandWithTheScriptThatFollowsTheRun) {
  TrainConfig config;
  EXPECT_TRUE(track_commands(config).empty());
  config.run_dir = "runs/my run";
  config.track = {.to = {"wandb", "mlflow", "trackio", "tensorboard"}, .project = "chat", .name = "first"};
  const auto commands = track_commands(config);
  ASSERT_EQ(commands.size(), 4u);
  const std::string scripts = "python3 " + in_repository("examples/track");
  EXPECT_EQ(commands[0].command, scripts + "/to_wandb.py 'runs/my run' --project chat --name first");
  EXPECT_EQ(commands[1].command, scripts + "/to_mlflow.py 'runs/my run' --experiment chat --name first");
  EXPECT_EQ(commands[2].command, scripts + "/to_trackio.py 'runs/my run' --project chat --name first");
  EXPECT_EQ(commands[3].command, "tensorboard --logdir 'runs/my run/tensorboard'");
}

TEST(Trackers, ScriptsTakeTheOptionsOfTheCommand) {
  for (const auto& [script, project] :
       {std::pair{"to_wandb.py", "--project"}, {"to_mlflow.py", "--experiment"}, {"to_trackio.py", "--project"}}) {
    const std::string text = read_bytes(in_repository(std::string("examples/track/") + script));
    for (const std::string option : {project, "--name"})
      EXPECT_NE(text.find("add_argument(\"" + option + "\""), std::string::npos) << script << " " << option;
  }
}

}  // namespace
}  // namespace megatrain
