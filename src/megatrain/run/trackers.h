// The programs of `track.to`, which show runs. Training needs none of them: a script of examples/track follows the
// files of a run, while it runs or afterwards, and sends each line once.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/config.h"

namespace megatrain {

struct TrackCommand {
  std::string program;  // for people: "Weights & Biases"
  std::string command;  // one line, quoted for a shell
};

// One for each name in track.to.
std::vector<TrackCommand> track_commands(const TrainConfig& config);

}  // namespace megatrain
