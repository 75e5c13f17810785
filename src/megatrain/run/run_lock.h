// One owner at a time of a run directory: a lock (io/file_lock.h) on RUN/lock. The file says who holds it; it is
// removed with the lock, and one that a killed process left is taken over. The lock is of the file, so it moves with
// the directory.
#pragma once

#include <string>

#include "megatrain/io/file_lock.h"

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
  Descriptor lock_;
};

// What the lock says to who only looks.
LockState lock_state(const std::string& directory);

// DIRECTORY/lock is a file as take() makes it, not another's of that name.
bool is_own_lock(const std::string& directory);

}  // namespace megatrain
