// The directory of a run: its one owner, an earlier run in it, and what a killed one left half-written.
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
  // Error(bad_config). When `resume`, it is then mended: complete checkpoints that lack only their name get it, and
  // everything else that a killed run left half-written is removed, each with a line. Nothing else is touched.
  // Throws Error(bad_config) when it holds no run and something else (foreign_files.h); `inputs` are files and folders
  // that the run itself names.
  RunDirectory(const std::string& path, bool resume, const std::vector<std::string>& inputs = {});

  // Makes the directory this run's own. An earlier run in it is moved aside, unless this one goes on with it.
  void make();

  // There is nothing to go on from: make() moves the earlier run aside although this one was to resume it.
  void start_over() { starts_over_ = true; }

  // To be called before something is written by name. Throws Error(io) when the directory that make() made is no longer
  // there under its name: another run may be.
  void check_in_place() const;
  bool in_place() const { return made_ && made_->is_at(path_); }

 private:
  void move_aside();

  std::string path_;  // without a final slash
  bool resume_, starts_over_ = false;
  RunLock lock_;
  std::optional<DirectoryLock> made_;  // knows the directory under any name; RunLock is what keeps others out
};

}  // namespace megatrain
