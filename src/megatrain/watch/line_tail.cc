#include "megatrain/watch/line_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace megatrain {

LineTail::News LineTail::poll() {
  News news;
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    if (file >= 0) ::close(file);
    news.again = std::exchange(inode_, 0) != 0;
    at_ = 0;
    return news;
  }
  if (inode_ != 0 && (inode_ != status.st_ino || device_ != status.st_dev || status.st_size < at_)) {
    news.again = true;
    at_ = 0;
  }
  inode_ = status.st_ino;
  device_ = status.st_dev;
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t got = ::pread(file, buffer.data(), buffer.size(), at_ + static_cast<int64_t>(text.size()));
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  ::close(file);
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    news.lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  at_ += static_cast<int64_t>(begin);
  return news;
}

}  // namespace megatrain
