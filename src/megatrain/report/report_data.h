// Everything that is shown of a run, as read from its directory.
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
  std::string architecture;                   // empty: not known
  int64_t parameters = 0;                     // 0: not known
  int64_t active_parameters = 0;              // that work on a token
  int64_t vocab = 0;                          // 0: not known
  std::string machine;                        // empty: not known
  std::string configuration;                  // YAML
  std::vector<ConfigDifference> differences;  // keys whose values are not the defaults
  int64_t steps = 0;                          // of the whole run
  bool complete = false;
  std::string state;     // a word for people: "complete", "running", "failed"
  std::string why;       // of a run that ended before its last step: "exit code 6: ..."; else empty
  bool aliased = false;  // device memory is host memory
  RunHistory history;
  std::optional<LaneTracks> lanes;
  std::vector<TierMemory> memory;
  std::vector<std::string> damaged;  // what could not be read, as sentences; the rest is shown without it

  std::string name() const;  // the directory's last part
};

// Throws Error(bad_input) when `path` is no run. What is damaged in it is left out and told in `damaged`, of a long
// list the first few and how many there are.
ReportData read_report(const std::string& path);
ReportData read_report(const std::string& path, RunHistory history);  // that was read already

// A figure of a run at the top of the page. Each says what it is of: the last step, or all of them.
struct Card {
  std::string title, value, note;
};
std::vector<Card> cards_of(const ReportData& data);

// "LlamaForCausalLM, 658K parameters · cpu"
std::string about(const ReportData& data);
// "step 3 of 10 (30%)"
std::string progress_of(const ReportData& data);

}  // namespace megatrain
