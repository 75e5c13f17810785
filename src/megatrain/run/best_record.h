// RUN/best.json: which model RUN/best holds. It is the only source: eval.jsonl may be truncated, and a resume drops its
// later lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

struct BestRecord {
  int64_t step = 0;
  std::optional<double> loss;  // of its evaluation; none: an earlier megatrain did not write it
  std::string weights;         // hash of its weights
  std::string data;            // fingerprint of the evaluation data; empty: unknown
};

// Returns nothing when there is no record. Throws Error(bad_input) when it is damaged.
//
// While best/ is being replaced, best.pending.json stands in with two records: the former model's and the next one's.
// If a kill leaves it behind, best/ is read and matched to the record with its weights; Error(bad_input) when neither
// matches.
std::optional<BestRecord> read_best_record(const std::string& run_dir);

// Called before a new model is moved to best/: from now on both the recorded model and `next` are valid there.
void begin_best_record(const std::string& run_dir, const BestRecord& next);
// Called once that model is complete.
void write_best_record(const std::string& run_dir, const BestRecord& record);
// Called when RUN/best is not what the run wrote.
void remove_best_record(const std::string& run_dir);

std::string best_record_path(const std::string& run_dir);

// Whether RUN/best holds a model, or a PEFT directory.
bool has_best(const std::string& run_dir);

}  // namespace megatrain
