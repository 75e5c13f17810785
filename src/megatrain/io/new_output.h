// Makes a file or directory under a new name, by one process at a time. Nothing that exists is ever replaced.
//
// The output is made in OUT.partial, a directory with a file `lock` that begins with a text of our own. The file is
// locked (io/file_lock.h) until the output has its name. A leftover of a killed process is taken over, or removed if
// the output already has its name.
//
// OUT.partial never exists without its `lock`: it is made and removed under a name private to this process. So a
// directory without that file was made by someone else and is not touched. Links are never followed.
#pragma once

#include <string>

#include "megatrain/io/file_lock.h"

namespace megatrain {

class NewOutput {
 public:
  // Error(bad_config) if `out` exists or another process is making it, Error(io) if OUT.partial is not an export's.
  explicit NewOutput(const std::string& out);
  ~NewOutput() { remove(); }
  NewOutput(const NewOutput&) = delete;
  NewOutput& operator=(const NewOutput&) = delete;

  const std::string& path() const { return path_; }  // make the output here; nothing exists there yet

  // Renames path() to OUT, durable when this returns; the caller has synced it. Error(bad_config) if something has
  // appeared under that name, Error(io) if OUT.partial no longer belongs to this object.
  void put_in_place();

 private:
  void remove_leftover() noexcept;
  bool take_over();
  bool make();
  void remove_contents() noexcept;
  void remove() noexcept;

  std::string out_, partial_, path_;
  Descriptor lock_;  // held
};

// Error(bad_config) if `out` exists. For callers that have work to do before they make a NewOutput.
void refuse_existing_output(const std::string& out);

}  // namespace megatrain
