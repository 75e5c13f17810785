// What `megatrain plan` reports of a target on a machine: its plan, or why none fits and what would.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/advice/machine_to_plan.h"
#include "megatrain/advice/realistic_step.h"
#include "megatrain/advice/suggestions.h"
#include "megatrain/advice/verdict.h"
#include "megatrain/io/json.h"
#include "megatrain/plan/fit.h"
#include "megatrain/plan/outlook.h"
#include "megatrain/run/disk_need.h"
#include "megatrain/train/target.h"

namespace megatrain {

struct PlanQuestion {
  Target target;
  MachineChoice machine = {};
  std::optional<int64_t> seed = {};  // of a random plan that fits
  std::optional<double> price = {};  // of an hour
  bool run_dir_is_known = false;     // the target says where a run writes, so the disk must have room
  FreeStep free = {};                // what is chosen of the step: the target is a model alone
  bool looks_for_faster = false;     // whether a plan that fits comes with changes that make it faster
};

struct PlanAnswer {
  struct Made {
    PlanInputs inputs;
    Plan plan;
    std::vector<std::string> changes = {};  // what was reduced to make it fit
    Outlook outlook = {};
    std::optional<Outlook> smallest = {};  // for a step of one micro-batch, if size_matters() and the step has more
  };
  Verdict verdict = {};
  TrainConfig config = {};                   // with the step that is planned
  bool step_chosen = false;                  // it is not the user's
  std::optional<Made> made = {};             // nothing: no plan fits
  std::string problem = {};                  // why nothing fits, or what the disk has no room for; empty: all fits
  std::vector<Suggestion> suggestions = {};  // if no plan fits; otherwise what is faster, if that was asked
  int64_t longest = 0;                       // longest_context()
  DiskNeed files = {};                       // if there is a plan
  FreeSpaceOf free_of = {};                  // empty: planned for another machine
  MachineProfile machine = {};
  std::optional<double> price = {};
};

// Throws Error(bad_config) for what is no question. What does not fit is an answer.
PlanAnswer answer_plan(const PlanQuestion& question);

// docs/reference/cli.md, "plan".
nlohmann::json to_json(const PlanAnswer& answer);
nlohmann::json machine_json(const MachineProfile& machine);

}  // namespace megatrain
