// The figures people want before they start a run, derived from a plan and a machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/plan/estimate.h"

namespace megatrain {

struct Outlook {
  Estimate estimate;
  double attention_s = 0;  // part of estimate.compute_s, recomputation included
  double tokens_per_s = 0;

  // Some transfers and updates cost the same for any number of tokens. Each of these three is the smallest number of
  // tokens per step for which compute takes as long as some of them; 0: there are none to hide. State that visits the
  // device is not counted, since it uses only the bandwidth that the link has left. All three come from sums over the
  // schedule.
  int64_t weights_tokens = 0;    // forward takes as long as fetching the weights it needs
  int64_t gradients_tokens = 0;  // backward takes as long as the gradients that leave during it
  // Compute takes as long as the slowest of the update, its disk traffic, and the gradients that waited on the device
  // for it. With clipping, all of this hides behind the next forward only.
  int64_t optimizer_tokens = 0;
  int64_t link_tokens() const { return weights_tokens > gradients_tokens ? weights_tokens : gradients_tokens; }

  int64_t checkpoint_bytes = 0;
  double checkpoint_s = 0;  // time to write it
};

Outlook outlook(const Workload& workload, const Plan& plan, const MachineProfile& machine);

std::string thousands(double value);  // "12,340", rounded to a whole number

// Cost of a billion tokens; `price` is per hour.
double cost_per_billion_tokens(const Outlook& outlook, double price);

// Whether people should be told how many tokens the link and the update each need, and how long a smaller step would
// take. True if there is anything to hide, and either compute does not bound the step or a token does not use all of
// the weights that move.
bool size_matters(const Workload& workload, const Outlook& outlook);

// Multi-line text; `price` as above.
std::string outlook_text(const Workload& workload, const Outlook& outlook, const MachineProfile& machine,
                         std::optional<double> price);

// The fewest tokens per step that hide the host's update of all trained parameters behind compute: the batch size to
// aim for when the state lives in host memory.
int64_t tokens_to_hide_host_update(const Workload& workload, const MachineProfile& machine);
// The same for all weights on their way to the device: for a base that is only read, as below adapters.
int64_t tokens_to_hide_host_weights(const Workload& workload, const MachineProfile& machine);

}  // namespace megatrain
