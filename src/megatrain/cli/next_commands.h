// Suggests what to do after a run ended or was stopped, as commands ready to paste.
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

// `arguments` are those of the `train` that ended.
std::vector<NextCommand> next_commands(const RunResult& result, const TrainConfig& config, const Arguments& arguments);

// Logs one line each: the command, then what it does.
void log_next_commands(const std::vector<NextCommand>& commands);

}  // namespace megatrain
