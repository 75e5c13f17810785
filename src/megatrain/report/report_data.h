// Everything that is shown of a run, read from its directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/report/run_history.h"
#include "megatrain/report/svg_lanes.h"
#include "megatrain/report/memory_figure.h"

namespace megatrain {

struct ConfigDifference {
  std::string key, value, by_default;  // as config.resolved.yaml writes them
};

struct ReportData {
  std::string run;                            // its directory
  std::string architecture;                   // empty: unknown
  int64_t parameters = 0;                     // 0: unknown
  int64_t active_parameters = 0;              // used per token
  int64_t vocab = 0;                          // 0: unknown
  std::string machine;                        // empty: unknown
  std::string configuration;                  // YAML
  std::vector<ConfigDifference> differences;  // keys that differ from their defaults
  int64_t steps = 0;                          // of the whole run
  bool complete = false;
  std::string state;     // a word for people: "complete", "running", "failed"
  std::string why;       // for a run that ended before its last step: "exit code 6: ..."; otherwise empty
  bool aliased = false;  // device memory is host memory
  RunHistory history;
  std::optional<LaneTracks> lanes;
  std::vector<TierMemory> memory;
  std::vector<std::string> damaged;  // messages about what could not be read; the rest is shown without it

  std::vector<std::string> warnings;  // what its losses show: divergence, a rising evaluation loss

  std::string name() const;  // the directory's last part
};

// Throws Error(bad_input) if `path` is not a run. Damaged parts are left out and reported in `damaged`; of a long list,
// the first few and their number.
ReportData read_report(const std::string& path);
// For a history that was read already.
ReportData read_report(const std::string& path, RunHistory history);

// A figure of a run at the top of the page. Each says whether it is of the last step or of all steps.
struct Card {
  std::string title, value, note;
};
std::vector<Card> cards_of(const ReportData& data);

// "LlamaForCausalLM, 658K parameters · cpu"
std::string about(const ReportData& data);
// "step 3 of 10 (30%)"
std::string progress_of(const ReportData& data);

}  // namespace megatrain
