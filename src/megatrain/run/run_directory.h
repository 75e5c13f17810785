// The directory of a run: its single owner, an earlier run in it, and the partial files of a killed one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatrain/io/file.h"
#include "megatrain/run/run_lock.h"

namespace megatrain {

class RunDirectory {
 public:
  // A directory that holds a run is locked at once, so that one in use is refused before anything is loaded: throws
  // Error(bad_config). With `resume` it is then cleaned up, with a log line for each change. Complete checkpoints that
  // lack only their final name get it, and all other partial files of a killed run are removed. Nothing else is
  // touched. Throws Error(bad_config) when it holds no run but other files (foreign_files.h). `inputs` are files and
  // folders that the configuration names.
  RunDirectory(const std::string& path, bool resume, const std::vector<std::string>& inputs = {});

  // Makes the directory this run's own. An earlier run in it is moved aside, unless this run resumes it.
  void make();

  // There is nothing to resume from: make() moves the earlier run aside even though this run was to resume it.
  void start_over() { starts_over_ = true; }

  // Must be called before writing anything by name. Throws Error(io) when the directory from make() is no longer at its
  // path: another run may be there.
  void check_in_place() const;
  bool in_place() const { return made_ && made_->is_at(path_); }

 private:
  void move_aside();

  std::string path_;  // without a trailing slash
  bool resume_, starts_over_ = false;
  RunLock lock_;
  // Identifies the directory even if it is renamed; RunLock is what keeps others out.
  std::optional<DirectoryLock> made_;
};

}  // namespace megatrain
