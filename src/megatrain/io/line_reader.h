// Reads a file line by line, in bounded memory however long the file is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "megatrain/io/file.h"

namespace megatrain {

class LineReader {
 public:
  // If the file may be missing, call can_read() (io/replace.h) first. Throws Error(io) if it cannot be read.
  explicit LineReader(const std::string& path);

  bool next();  // moves to the first line, then to the next one; false at the end of the file

  std::string_view line() const { return std::string_view(buffer_).substr(begin_, length_); }  // without its line end
  bool ended() const { return ended_; }       // has a line end; only the last line may lack one
  int64_t number() const { return number_; }  // counts from 1
  int64_t offset() const { return base_ + static_cast<int64_t>(begin_); }  // of the line's first byte in the file
  int64_t bytes() const { return static_cast<int64_t>(length_) + (ended_ ? 1 : 0); }  // with its line end

 private:
  bool read_more();

  File file_;
  std::string buffer_;  // the file's bytes from base_ on
  int64_t base_ = 0, number_ = 0;
  size_t begin_ = 0, length_ = 0;
  bool ended_ = false;
};

}  // namespace megatrain
