#include "megatrain/advice/longest_context.h"

#include <algorithm>
#include <vector>

#include "megatrain/model/model.h"
#include "megatrain/plan/planner.h"
#include "megatrain/train/expert_groups.h"

namespace megatrain {

namespace {

// Searches the longest sequence for one way of grouping experts into records, in grains of kContextGrain tokens.
//
// Memory grows with the length, except for the workspace and the ops' scratch. These drop where attention or a block is
// split into one more part, or while the head's workspace is the larger one. Between such points they grow too. So the
// lengths form stretches, and within a stretch a longer sequence never fits if a shorter one does not.
class Lengths {
 public:
  Lengths(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned, const TensorTypes& stored,
          const Budgets& budgets, int64_t experts_per_record)
      : tried_(config),
        model_(model),
        kinds_(one_layer_of_each_kind(model)),
        planned_(planned),
        stored_(stored),
        budgets_(budgets),
        experts_per_record_(experts_per_record),
        most_grains_(most_tokens(config) / kContextGrain) {
    find_stretches();
  }

  // In grains; 0 if none fits.
  int64_t longest() {
    // If a stretch does not fit even with the least workspace and scratch of any later length, no later length fits.
    size_t low = 0, high = stretches_.size();  // below low: may fit; from high on: cannot
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (fits(stretches_[middle].begin, stretches_[middle].least_bytes)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    for (size_t at = low; at > 0; --at) {
      const int64_t begin = stretches_[at - 1].begin;
      if (!fits(begin)) continue;
      int64_t fit = begin, not_fit = at < stretches_.size() ? stretches_[at].begin : most_grains_ + 1;
      while (not_fit - fit > 1) {
        const int64_t middle = fit + (not_fit - fit) / 2;
        (fits(middle) ? fit : not_fit) = middle;
      }
      return fit;
    }
    return 0;
  }

 private:
  // The longest sequence that a configuration may have with these chunks.
  static int64_t most_tokens(const TrainConfig& config) {
    int64_t most = kMostContext;
    for (const int64_t chunk : {config.mlp_chunk, config.head_chunk}) {
      if (chunk > 0 && chunk < most / kMostParts) most = chunk * kMostParts;
    }
    return most;
  }

  struct Stretch {
    int64_t begin;        // in grains; it ends where the next one begins
    int64_t least_bytes;  // the least workspace plus scratch of any length from here on
  };

  void find_stretches() {
    RunIdentity identity = make_identity(tried_, model_);
    int64_t chunk = 0, scratch = 0;
    bool head = true;  // the head's workspace may be the largest
    for (int64_t grains = 1; grains <= most_grains_; ++grains) {
      tried_.seq_len = grains * kContextGrain;
      identity.micro_tokens = tried_.seq_len;
      const int64_t chunk_now = mlp_chunk_of(tried_);
      const int64_t scratch_now = scratch_bytes(ops_shape(tried_, model_, identity), planned_);
      if (head || chunk_now < chunk || scratch_now < scratch) {
        const int64_t workspace = workspace_bytes();
        stretches_.push_back({grains, workspace + scratch_now});
        head = workspace <= kHeadBytes;
      }
      chunk = chunk_now;
      scratch = scratch_now;
    }
    for (size_t at = stretches_.size(); at-- > 1;)
      stretches_[at - 1].least_bytes = std::min(stretches_[at - 1].least_bytes, stretches_[at].least_bytes);
  }

  int64_t workspace_bytes() const {
    const RunIdentity identity = make_identity(tried_, kinds_);
    return make_model(kinds_, model_shape(identity, tried_.seq_len, experts_per_record_)).workspace_bytes();
  }

  Workload workload(int64_t grains) {
    tried_.seq_len = grains * kContextGrain;
    return make_workload(tried_, model_, make_identity(tried_, model_), planned_, stored_, experts_per_record_);
  }
  bool fits(int64_t grains) { return can_fit(workload(grains), budgets_, planned_.profile); }
  // Assuming this much workspace and scratch.
  bool fits(int64_t grains, int64_t bytes) {
    Workload w = workload(grains);
    w.workspace_bytes = 0;
    w.scratch_bytes = bytes;
    w.generation_bytes = std::max<int64_t>(0, w.generation_bytes - bytes);  // the workspace is lent to generation
    return can_fit(w, budgets_, planned_.profile);
  }

  TrainConfig tried_;
  const ModelConfig& model_;
  ModelConfig kinds_;
  const PlannedMachine& planned_;
  const TensorTypes& stored_;
  const Budgets& budgets_;
  int64_t experts_per_record_;
  int64_t most_grains_;
  std::vector<Stretch> stretches_;
};

}  // namespace

int64_t longest_context(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                        const TensorTypes& stored) {
  TrainConfig tried = config;
  if (!drop_budgets_beyond(planned, tried).empty()) return 0;
  const Budgets budgets = make_budgets(tried, planned);
  PlannedMachine bounded =
      planned;  // bound the scratch arithmetically instead of querying the GPU's libraries for every length
  if (planned.gpu) bounded.ops = nullptr;
  tried.micro_batch = 1;
  const DType dtype = make_identity(tried, model).dtype;
  int64_t grains = 0;
  for (const int64_t experts_per_record : group_sizes(model, dtype, budgets.gpu_bytes))
    grains = std::max(grains, Lengths(tried, model, bounded, stored, budgets, experts_per_record).longest());
  return grains * kContextGrain;
}

}  // namespace megatrain
