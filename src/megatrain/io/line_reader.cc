#include "megatrain/io/line_reader.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

LineReader::LineReader(const std::string& path) : file_(File::open_to_read(path)) {}

// Drops the bytes before the current line and reads more after the buffer; false at the end of the file.
bool LineReader::read_more() {
  constexpr size_t kPiece = 1 << 18;
  buffer_.erase(0, begin_);
  base_ += static_cast<int64_t>(begin_);
  begin_ = 0;
  const size_t had = buffer_.size();
  buffer_.resize(had + kPiece);
  ssize_t got = 0;
  do {
    got = ::pread(file_.descriptor(), buffer_.data() + had, kPiece, base_ + static_cast<int64_t>(had));
  } while (got < 0 && errno == EINTR);
  if (got < 0) fail_io(fmt::format("cannot read {}: {}; {}.", file_.path(), std::strerror(errno), errno_advice(errno)));
  buffer_.resize(had + static_cast<size_t>(got));
  return got > 0;
}

bool LineReader::next() {
  begin_ += static_cast<size_t>(bytes());
  length_ = 0;
  ended_ = false;
  size_t searched = 0;
  for (;;) {
    const size_t end = buffer_.find('\n', begin_ + searched);
    if (end != std::string::npos) {
      length_ = end - begin_;
      ended_ = true;
      break;
    }
    searched = buffer_.size() - begin_;
    if (read_more()) continue;
    if (searched == 0) return false;
    length_ = searched;
    break;
  }
  ++number_;
  return true;
}

}  // namespace megatrain
