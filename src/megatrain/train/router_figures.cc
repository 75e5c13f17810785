#include "megatrain/train/router_figures.h"

#include <algorithm>
#include <vector>

#include "megatrain/ops/experts.h"

namespace megatrain {

std::optional<RouterFigures> router_figures(const Workload& w, std::byte* counts, int64_t choices) {
  if (w.experts == 0) return {};
  const size_t experts = static_cast<size_t>(w.experts);
  RouterFigures figures;
  std::vector<double> chosen(experts, 0), probability(experts, 0);  // summed over the layers
  double layers = 0, tokens = 0, used = 0, squared_lse = 0;
  for (const PhaseWork& phase : w.phases) {
    if (phase.router_bytes == 0) continue;
    const RouterCounts layer = RouterCounts::within(counts, w.experts, choices);
    counts += phase.router_bytes;
    int64_t largest = 0, all = 0;
    for (size_t e = 0; e < experts; ++e) {
      int64_t load = 0;
      for (int64_t j = 0; j < choices; ++j) load += layer.choice_counts[j * w.experts + static_cast<int64_t>(e)];
      largest = std::max(largest, load);
      all += load;
      used += load > 0;
      chosen[e] += static_cast<double>(load);
      probability[e] += layer.probability[e];
    }
    const double imbalance =
        static_cast<double>(largest) * static_cast<double>(experts) / static_cast<double>(std::max<int64_t>(all, 1));
    figures.imbalance += imbalance;
    figures.worst_imbalance = std::max(figures.worst_imbalance, imbalance);
    squared_lse += *layer.squared_lse;
    tokens += static_cast<double>(*layer.tokens);
    ++layers;
  }
  figures.imbalance /= layers;
  figures.used = used / (layers * static_cast<double>(experts));
  if (w.aux_loss > 0) {
    double sum = 0;
    for (size_t e = 0; e < experts; ++e) sum += chosen[e] / tokens * (probability[e] / tokens);
    figures.aux_loss = sum * static_cast<double>(experts);
  }
  if (w.z_loss > 0) figures.z_loss = squared_lse / tokens;
  return figures;
}

}  // namespace megatrain
