// What follows from a plan on a machine, in the figures people ask for before they start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/plan/plan.h"

namespace megatrain {

struct Outlook {
  Estimate estimate;
  double tokens_per_s = 0;

  // Tokens a step from which on compute takes as long as what must move or be updated whatever the tokens are; 0:
  // nothing does.
  int64_t link_tokens = 0;
  int64_t optimizer_tokens = 0;  // the update and its disk; with clipping they hide behind the next forward alone

  int64_t checkpoint_bytes = 0;
  double checkpoint_s = 0;  // to write it
};

Outlook outlook(const Workload& workload, const Plan& plan, const MachineProfile& machine);

// Of a billion tokens; `price` is of an hour.
double cost_per_billion_tokens(const Outlook& outlook, double price);

// Lines for a person; `price` as above.
std::string outlook_text(const Workload& workload, const Outlook& outlook, const MachineProfile& machine,
                         std::optional<double> price);

// The least tokens a step that hide the host's update of all that is trained behind compute: what a step should have
// when its state lives in host memory.
int64_t tokens_to_hide_host_update(const Workload& workload, const MachineProfile& machine);

}  // namespace megatrain
