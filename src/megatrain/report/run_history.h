// A run's history read back from its logs: steps, evaluations, samples.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

struct RunStep {
  int64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0, seconds = 0, tokens_per_s = 0;
  double paused_s = 0;  // part of `seconds`, before the step
  int64_t tokens = 0, trained_tokens = 0;
  int64_t hbm_peak = 0, host_peak = 0;  // bytes
};

struct RunEvaluation {
  int64_t step = 0;
  double loss = 0;
};

struct RunSample {
  int64_t step = 0;
  std::string prompt, text;
};

struct RunHistory {
  std::vector<RunStep> steps;  // ascending
  int64_t planned_steps = 0;   // of the whole run; 0: unknown
  std::string bound_by;        // what bounded the last step read
  std::vector<RunEvaluation> evaluations;
  std::vector<RunSample> samples;
  std::vector<std::string> damaged;  // skipped lines, each with file, number and what is wrong

  double seconds() const;                        // of all steps
  double step_seconds() const;                   // of a current step, see StepPace; 0: there is none
  int64_t tokens() const;                        // of all steps
  double tokens_per_s() const;                   // median over steps without the first; 0: there is none
  const RunEvaluation* best_evaluation() const;  // null: none
};

// Appends one line of metrics.jsonl, eval.jsonl or samples.jsonl to the history. Throws Error(bad_input), whose message
// begins with `where`, if it is not such an object.
enum class HistoryFile { metrics, evaluations, samples };
void add_to_history(std::string_view line, HistoryFile file, const std::string& where, RunHistory& history);

// Reads those of the run's metrics.jsonl, eval.jsonl and samples.jsonl that exist. The run may be writing them: a last
// line without its end is skipped. Other malformed lines are left out and reported in `damaged`. Throws Error(io) for a
// file that cannot be read.
RunHistory read_history(const std::string& run_dir);

}  // namespace megatrain
