// A file of lines that grows during a run, such as metrics.jsonl.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/io/file.h"

namespace megatrain {

class LineFile {
 public:
  // Creates the file, or continues an existing one. A truncated last line is terminated first, so that lines never
  // merge.
  explicit LineFile(const std::string& path);

  void append(std::string_view line);  // in one write; `line` has no line end
  void sync() const { file_.sync(); }

 private:
  File file_;
  int64_t at_ = 0;  // file length
};

// Which lines of a history are records: objects without duplicate keys whose "step" is a whole number from 1 to
// kMostSteps.
struct LineForm {
  std::vector<std::string_view> numbers = {};  // a record has at least one of these keys; empty: no such condition
  std::vector<std::string_view> texts = {};    // a record has all of these keys
  // True: a step may have any number of records. False: one, or one for each key of `numbers`.
  bool several = false;
};

inline constexpr int64_t kMostSteps = 1'000'000'000;  // the most that a configuration may ask for

// Keeps the records of steps up to `last_step`, which a resumed run continues from. Returns the last step kept, or 0 if
// there is none. Lines that are not records, and repeated records of a step, are first moved to the end of
// PATH.damaged: a line that cannot be read is never thrown away. A warning gives their numbers. All or nothing, like
// write_text_file. A missing file is fine.
int64_t keep_lines_up_to(const std::string& path, int64_t last_step, const LineForm& form = {});

}  // namespace megatrain
