// The terminal as a screen: keys without waiting for a line, frames in place. It is as it was before when this goes,
// however that comes about.
#pragma once

#include <termios.h>

#include <string>
#include <vector>

namespace megatrain {

class Terminal {
 public:
  // Throws Error(bad_config) when standard input or standard output is no terminal.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  struct Size {
    int width = 80, height = 24;
  };
  Size size() const;  // now
  void show(const std::vector<std::string>& lines);

  // A key, within so many milliseconds; 0: none. -1: standard input has ended.
  int key(int wait_ms) const;

 private:
  termios before_{};
  std::string shown_;
};

}  // namespace megatrain
