// What follows from a plan on a machine, in the figures people ask for before they start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/plan/estimate.h"

namespace megatrain {

struct Outlook {
  Estimate estimate;
  double attention_s = 0;  // of estimate.compute_s, what is computed again included
  double tokens_per_s = 0;

  // Tokens a step from which on compute takes as long as what must move or be updated whatever the tokens are; 0:
  // nothing does. Visits are not counted: they take what is left of the link. All are sums over the schedule.
  int64_t weights_tokens = 0;    // forward, as long as the weights that it needs take to come
  int64_t gradients_tokens = 0;  // backward, as long as the gradients that leave in it take
  int64_t optimizer_tokens = 0;  // the update, the gradients that waited on the device for it, and its disk; with
                                 // clipping they hide behind the next forward alone
  int64_t link_tokens() const { return weights_tokens > gradients_tokens ? weights_tokens : gradients_tokens; }

  int64_t checkpoint_bytes = 0;
  double checkpoint_s = 0;  // to write it
};

Outlook outlook(const Workload& workload, const Plan& plan, const MachineProfile& machine);

// Of a billion tokens; `price` is of an hour.
double cost_per_billion_tokens(const Outlook& outlook, double price);

// Whether a person learns something from what the link and the update each need, and from what a smaller step would
// take: there is something to hide, and compute does not bound the step or a token meets few of the weights that move.
bool size_matters(const Workload& workload, const Outlook& outlook);

// Lines for a person; `price` as above.
std::string outlook_text(const Workload& workload, const Outlook& outlook, const MachineProfile& machine,
                         std::optional<double> price);

// The least tokens a step that hide the host's update of all that is trained behind compute: what a step should have
// when its state lives in host memory.
int64_t tokens_to_hide_host_update(const Workload& workload, const MachineProfile& machine);

}  // namespace megatrain
