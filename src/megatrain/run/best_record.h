// RUN/best.json: which model RUN/best holds. Nothing else says it: eval.jsonl may be cut, and a resumed run forgets its
// later lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

struct BestRecord {
  int64_t step = 0;
  std::optional<double> loss;  // of its evaluation; none: an earlier megatrain did not write it
  std::string weights;         // their hash
  std::string data;            // the fingerprint of what was evaluated on; empty: not known
};

// None: there is no record. Throws Error(bad_input) when it is damaged.
//
// While best/ is being replaced there is best.pending.json instead, with the record of the former model and that of the
// next. What a kill leaves then is read through: best/ is the one whose weights it has. Error(bad_input) when it has
// neither's.
std::optional<BestRecord> read_best_record(const std::string& run_dir);

// Before a model takes its place in best/, where only the recorded one may be.
void begin_best_record(const std::string& run_dir, const BestRecord& next);
// When that model is whole.
void write_best_record(const std::string& run_dir, const BestRecord& record);
// RUN/best is not what the run wrote.
void remove_best_record(const std::string& run_dir);

std::string best_record_path(const std::string& run_dir);

}  // namespace megatrain
