// What a person may want to do after a run ended or was stopped: commands that are ready to paste.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/arguments.h"
#include "megatrain/config/config.h"
#include "megatrain/run/run.h"

namespace megatrain {

struct NextCommand {
  std::string command;  // quoted for a shell
  std::string does;
};

// `arguments` are those of the `train` that ended so.
std::vector<NextCommand> next_commands(const RunResult& result, const TrainConfig& config, const Arguments& arguments);

// A line each, what it does behind the command.
void log_next_commands(const std::vector<NextCommand>& commands);

}  // namespace megatrain
