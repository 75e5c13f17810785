#include "megatrain/train/longest_context.h"

#include <algorithm>
#include <vector>

#include "megatrain/train/expert_groups.h"

namespace megatrain {

int64_t longest_context(const TrainConfig& config, const ModelConfig& model, const Site& site,
                        const TensorTypes& stored) {
  TrainConfig tried = config;
  if (!drop_budgets_beyond(site, tried).empty()) return 0;
  const Budgets budgets = make_budgets(tried, site);
  Site bounded = site;  // scratch by arithmetic: a GPU's libraries would be asked of every length that is tried
  if (site.gpu) bounded.ops = nullptr;
  tried.micro_batch = 1;
  const auto fits = [&](int64_t grains) {
    tried.seq_len = grains * kContextGrain;
    const RunIdentity identity = make_identity(tried, model);
    const std::vector<int64_t> sizes = group_sizes(model, identity.dtype, budgets.gpu_bytes);
    return std::any_of(sizes.begin(), sizes.end(), [&](int64_t experts_per_record) {
      return can_fit(make_workload(tried, model, identity, bounded, stored, experts_per_record), budgets, site.profile);
    });
  };
  int64_t low = 0, high = kMostContext / kContextGrain + 1;  // grains that fit, and that do not
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low * kContextGrain;
}

}  // namespace megatrain
