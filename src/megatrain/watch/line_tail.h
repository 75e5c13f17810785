// A file of lines that another process appends to, read as it grows.
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
    bool again = false;              // the file is another one, or was cut or rewritten: `lines` are all of it
    std::vector<std::string> lines;  // whole ones, without their ends
  };
  // A line without its end is being written, and comes later. A file that is not there, or cannot be read, has no
  // news: what was read of it holds until another one is in its place.
  News poll();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;   // 0: nothing was read yet
  int64_t at_ = 0;    // behind the last whole line
  std::string last_;  // that line, with its end
};

}  // namespace megatrain
