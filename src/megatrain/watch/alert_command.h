// Runs the user's command for every alert: `sh -c COMMAND`, with the alert as one line of JSON on standard input. No
// part of an alert becomes part of the command. The watch never waits for it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace megatrain {

class AlertCommand {
 public:
  // `quiet` drops its output, which otherwise goes to standard error.
  AlertCommand(std::string command, bool quiet) : command_(std::move(command)), quiet_(quiet) {}

  // Does nothing for an empty command. At most eight run at once; beyond that the alert starts none, with a warning.
  void run(const std::string& alert);

  // Collects commands that have ended. A failure is a warning, unless quiet.
  void reap();
  size_t running() const { return children_.size(); }
  const std::vector<pid_t>& children() const { return children_; }

 private:
  std::string command_;
  bool quiet_;
  std::vector<pid_t> children_;
};

}  // namespace megatrain
