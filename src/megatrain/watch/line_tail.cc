#include "megatrain/watch/line_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <optional>

namespace megatrain {

namespace {

// The file's text from `at` on; empty if it cannot be read.
std::optional<std::string> read_from(int file, int64_t at) {
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t got = ::pread(file, buffer.data(), buffer.size(), at + static_cast<int64_t>(text.size()));
    if (got < 0) return std::nullopt;
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
}

}  // namespace

LineTail::News LineTail::poll() {
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    if (file >= 0) ::close(file);
    return {};
  }
  // The inode number may have been reused for a new file, so the last line is compared, too.
  bool same = inode_ == status.st_ino && device_ == status.st_dev && status.st_size >= at_;
  std::optional<std::string> text = read_from(file, same ? at_ - static_cast<int64_t>(last_.size()) : 0);
  if (same && text && !text->starts_with(last_)) {
    same = false;
    text = read_from(file, 0);
  }
  ::close(file);
  if (!text) return {};
  News news{.replaced = inode_ != 0 && !same};
  if (!same) {
    at_ = 0;
    last_.clear();
  }
  inode_ = status.st_ino;
  device_ = status.st_dev;
  const size_t known = last_.size();
  size_t begin = known;
  for (size_t end = text->find('\n', begin); end != std::string::npos; end = text->find('\n', begin)) {
    news.lines.push_back(text->substr(begin, end - begin));
    begin = end + 1;
  }
  at_ += static_cast<int64_t>(begin - known);
  if (!news.lines.empty()) last_ = news.lines.back() + "\n";
  return news;
}

}  // namespace megatrain
