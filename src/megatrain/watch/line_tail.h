// Follows a file of lines that another process appends to.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace megatrain {

class LineTail {
 public:
  explicit LineTail(std::string path) : path_(std::move(path)) {}

  struct News {
    // The file was replaced, truncated or rewritten: `lines` are all of its lines.
    bool replaced = false;
    std::vector<std::string> lines;  // complete ones, without line ends
  };
  // A line without its end is still being written and comes later. A missing or unreadable file has no news: what was
  // read remains valid until another file takes its place.
  News poll();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;   // 0: nothing read yet
  int64_t at_ = 0;    // after the last complete line
  std::string last_;  // that line, with its line end
};

}  // namespace megatrain
