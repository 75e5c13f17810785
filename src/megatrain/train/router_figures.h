// How a step's tokens were distributed over the experts, and the values of the router losses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "megatrain/plan/workload.h"

namespace megatrain {

// An expert's load is the number of times its layer's router chose it. Padding tokens choose no expert.
struct RouterFigures {
  double imbalance = 0;        // largest load in a layer over the mean load, averaged over layers
  double worst_imbalance = 0;  // the same, for the worst layer
  double used = 0;             // fraction of the layers' experts that were chosen at all
  // Without their coefficients; set only if the coefficient is not 0.
  std::optional<double> aux_loss;  // E * sum over experts of (choices / tokens) * mean probability; k if balanced
  std::optional<double> z_loss;    // mean squared log-sum-exp of the logits
};

// `counts` are the RouterCounts of the workload's phases, one after the other. nullopt without a router.
std::optional<RouterFigures> router_figures(const Workload& workload, std::byte* counts, int64_t choices);

}  // namespace megatrain
