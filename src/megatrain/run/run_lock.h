// A run directory has one owner at a time: a lock (io/file_lock.h) on RUN/lock. The file says who holds it and is
// removed with the lock; one left by a killed process is taken over. The lock belongs to the file, so it moves with the
// directory.
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

  // Returns false when the directory does not exist (any more). Throws Error(bad_config) with the owner's pid and host
  // when another process holds the lock.
  bool take(const std::string& directory);
  void release() noexcept;

  bool held_at(const std::string& directory) const;  // this lock is held and the directory is still at that path
  void moved_to(const std::string& directory);       // tells the lock that the directory was renamed

 private:
  std::string path_;
  Descriptor lock_;
};

// The state of the lock, without taking it.
LockState lock_state(const std::string& directory);

// Whether DIRECTORY/lock is a file made by take(), not something else of that name.
bool is_own_lock(const std::string& directory);

}  // namespace megatrain
