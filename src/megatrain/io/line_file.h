// A file of lines that grows while a run goes, such as metrics.jsonl.
#pragma once

#include <string>
#include <string_view>

#include "megatrain/io/file.h"

namespace megatrain {

class LineFile {
 public:
  // Created, or gone on with: a last line that was cut is ended first, so that no line ever joins another.
  explicit LineFile(const std::string& path);

  void append(std::string_view line);  // in one write; `line` has no line end
  void sync() const { file_.sync(); }

 private:
  File file_;
  int64_t at_ = 0;  // the file's length
};

// Keeps the lines that are JSON objects whose "step" is at most `last_step`, or absent: what a resumed run goes on
// from. Lines that are no such objects are moved to the end of PATH.damaged first, with a warning that has their
// numbers: nothing that cannot be read is thrown away. All or nothing, as write_text_file. A missing file is fine.
void keep_lines_up_to(const std::string& path, int64_t last_step);

}  // namespace megatrain
