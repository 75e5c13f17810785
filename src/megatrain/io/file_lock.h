// Exclusive locks (flock) on open files. One process holds a lock at a time, until it closes the file or ends in any
// way. On NFS the kernel turns it into a lock on the server, which other machines see. If a file system has no locks,
// there is a warning and no protection.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace megatrain {

// Owns an open descriptor, and with it the lock on its file.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int opened) : opened_(opened) {}  // negative: not open
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : opened_(std::exchange(other.opened_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(opened_, other.opened_);
    return *this;
  }

  bool is_open() const { return opened_ >= 0; }
  int get() const { return opened_; }
  // Whether the path names the open file. A link at the end of the path is not followed.
  bool is_at(const std::string& path) const;
  void close() noexcept;

 private:
  int opened_ = -1;
};

// False if another process holds the lock. `path` names the file in messages, and `others` says what only the lock
// prevents: "a second export from the same name". Throws Error(io) if locking fails for another reason.
bool lock_if_free(const Descriptor& file, const std::string& path, std::string_view others);

// Replaces the file's text, which says who holds the lock. If it returns false, errno is set and the old text stays.
bool write_owner(const Descriptor& file, std::string_view text);

// The state of a lock for a process that only looks. It takes the lock for an instant, shared; lock_if_free()
// recognises that and does not mistake it for an owner.
enum class LockState { absent, free, held, unknown };  // unknown: the file system has no locks, or it cannot be read
LockState look_at_lock(const std::string& path);

}  // namespace megatrain
