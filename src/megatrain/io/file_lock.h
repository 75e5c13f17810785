// Exclusive locks (flock) on open files. One process holds a lock at a time, until it closes the file or ends, however
// that comes. On NFS the kernel turns it into a lock of the server, which other machines see. Where a file system has
// no locks there is a warning, and no protection.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace megatrain {

// Owns an open descriptor, and with it the lock on its file.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int opened) : opened_(opened) {}  // negative: none
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : opened_(std::exchange(other.opened_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(opened_, other.opened_);
    return *this;
  }

  bool is_open() const { return opened_ >= 0; }
  int get() const { return opened_; }
  bool is_at(const std::string& path) const;  // the path names what is open; a link at its end is not followed
  void close() noexcept;

 private:
  int opened_ = -1;
};

// False where another process holds the lock. `path` is the file's name in messages, and `others` what only the lock
// keeps away: "a second export from the same name". Throws Error(io) where it cannot be locked for another reason.
bool lock_if_free(const Descriptor& file, const std::string& path, std::string_view others);

// Replaces the file's text, which says who holds the lock. False, with errno: the former text stays.
bool write_owner(const Descriptor& file, std::string_view text);

// What the lock says to who only looks. It is tried for an instant, shared, which lock_if_free() tells from an owner.
enum class LockState { absent, free, held, unknown };  // unknown: the file system has no locks, or it cannot be read
LockState look_at_lock(const std::string& path);

}  // namespace megatrain
