// How a step's tokens were spread over the experts, and what the losses of the router came to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "megatrain/plan/workload.h"

namespace megatrain {

// The load of an expert is how many of its layer's choices are it; padding chooses nothing.
struct RouterFigures {
  double imbalance = 0;        // the largest load of a layer over the mean load, mean over the layers
  double worst_imbalance = 0;  // of the layer where it is largest
  double used = 0;             // share of the layers' experts with a load
  // Without their coefficients; each where its coefficient is not 0.
  std::optional<double> aux_loss;  // E * sum over experts of (choices / tokens) * mean probability; k when all are even
  std::optional<double> z_loss;    // mean squared log-sum-exp of the logits
};

// `counts` are the RouterCounts of the workload's phases, one after the other. None without a router.
std::optional<RouterFigures> router_figures(const Workload& workload, std::byte* counts, int64_t choices);

}  // namespace megatrain
