// A command of the user's for every alert: `sh -c COMMAND`, with the alert as one line of JSON on its standard input.
// Nothing of an alert becomes part of the command. It runs beside the watch, which never waits for it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace megatrain {

class AlertCommand {
 public:
  // `quiet`: what it prints is dropped; else it goes to standard error.
  AlertCommand(std::string command, bool quiet) : command_(std::move(command)), quiet_(quiet) {}

  // Does nothing for an empty command. At most eight run at once; what goes beyond that is dropped, with a warning.
  void run(const std::string& alert);

  // Those that have ended; one that failed is a warning, unless quiet.
  void reap();
  size_t running() const { return children_.size(); }
  const std::vector<pid_t>& children() const { return children_; }

 private:
  std::string command_;
  bool quiet_;
  std::vector<pid_t> children_;
};

}  // namespace megatrain
