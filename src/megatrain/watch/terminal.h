// The terminal as a screen: keys without waiting for a line, frames drawn in place. The destructor restores the
// terminal, whatever ended the watch.
#pragma once

#include <termios.h>

#include <string>
#include <vector>

namespace megatrain {

class Terminal {
 public:
  // Throws Error(bad_config) if standard input or standard output is not a terminal.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  struct Size {
    int width = 80, height = 24;
  };
  Size size() const;  // current size
  void show(const std::vector<std::string>& lines);

  // A key pressed within `wait_ms` milliseconds; 0: none; -1: standard input has ended.
  int key(int wait_ms) const;

 private:
  termios before_{};
  std::string shown_;
};

}  // namespace megatrain
