// One owner at a time of a run directory: an exclusive flock on RUN/lock, which the end of the process releases,
// however it comes. The file says who holds it; it is removed with the lock, and one that a killed process left is
// taken over.
//
// The lock is of the file, so it moves with the directory. On NFS the kernel turns it into a lock of the server, which
// other machines see. Where a file system has no locks there is a warning, and no protection.
#pragma once

#include <string>

namespace megatrain {

class RunLock {
 public:
  RunLock() = default;
  ~RunLock() { release(); }
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // False when the directory is not there (any more). Throws Error(bad_config) with the owner's pid and host when
  // another holds it.
  bool take(const std::string& directory);
  void release() noexcept;

  bool held_at(const std::string& directory) const;  // this lock is held, and the directory stands there
  void moved_to(const std::string& directory);       // the directory has another name now

 private:
  std::string path_;
  int descriptor_ = -1;
};

// What the lock says to who only looks. It is tried for an instant, shared, which take() tells from an owner.
enum class LockState { absent, free, held, unknown };  // unknown: the file system has no locks, or it cannot be read
LockState lock_state(const std::string& directory);

// DIRECTORY/lock is a file as take() makes it, not another's of that name.
bool is_own_lock(const std::string& directory);

}  // namespace megatrain
