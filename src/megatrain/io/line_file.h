// A file of lines that grows while a run goes, such as metrics.jsonl.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

// Which lines of a history are records: objects whose "step" is a whole number from 1 to kMostSteps, without a key
// twice.
struct LineForm {
  std::vector<std::string_view> numbers = {};  // keys of which a record has at least one; none: it needs none
  std::vector<std::string_view> texts = {};    // keys that a record has
  bool several = false;                        // a step may have any number of records; else one
};

inline constexpr int64_t kMostSteps = 1'000'000'000;  // that a configuration may ask for

// Keeps the records of steps up to `last_step`, which a resumed run goes on from, and returns the last of their steps
// (0: there is none). Lines that are no records, and further records of a step, are moved to the end of PATH.damaged
// first, with a warning that has their numbers: nothing that cannot be read is thrown away. All or nothing, as
// write_text_file. A missing file is fine.
int64_t keep_lines_up_to(const std::string& path, int64_t last_step, const LineForm& form = {});

}  // namespace megatrain
