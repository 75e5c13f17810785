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
};

// None: there is no record. Throws Error(bad_input) when it is damaged.
//
// While best/ is being replaced the record of the former model is best.former.json. What a kill leaves then is read
// through: the record holds if best/ still has those weights.
std::optional<BestRecord> read_best_record(const std::string& run_dir);

// Before another model takes the place of the recorded one.
void set_best_record_aside(const std::string& run_dir);
// When that model is whole.
void write_best_record(const std::string& run_dir, const BestRecord& record);
// RUN/best is not what the run wrote.
void remove_best_record(const std::string& run_dir);

std::string best_record_path(const std::string& run_dir);

}  // namespace megatrain
