// A file or directory that is made under a name where nothing is: by one process at a time, and what is there is never
// replaced.
//
// It is made in OUT.partial, a directory with a file `lock` that begins as no other program's file does. It is locked
// (io/file_lock.h) until the output has its name. What a killed process left is taken over, or removed where the output
// had its name already.
//
// OUT.partial never stands without its `lock`: it is made and removed under a name of this process's own. So whatever
// has no such file was made by someone else and is not touched; a link is never followed.
#pragma once

#include <string>

#include "megatrain/io/file_lock.h"

namespace megatrain {

class NewOutput {
 public:
  // Error(bad_config) where `out` is there or another process makes it, Error(io) where OUT.partial is no export's.
  explicit NewOutput(const std::string& out);
  ~NewOutput() { remove(); }
  NewOutput(const NewOutput&) = delete;
  NewOutput& operator=(const NewOutput&) = delete;

  const std::string& path() const { return path_; }  // where the output is to be made; nothing is there

  // What is at path(), synced before, becomes OUT, durable when this returns. Error(bad_config) where something has
  // appeared under that name, Error(io) where OUT.partial is not this one's any more.
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

// Error(bad_config) where something has the name `out`, for those who have work to do before they make a NewOutput.
void refuse_existing_output(const std::string& out);

}  // namespace megatrain
