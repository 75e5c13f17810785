#include "megatrain/advice/suggestions.h"

#include <algorithm>
#include <functional>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/advice/plan_inputs.h"
#include "megatrain/base/units.h"
#include "megatrain/model/model_source.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/train/planned_machine.h"

namespace megatrain {

namespace {

constexpr size_t kMost = 4;
// How much slower another way may be before a way that trains all weights, or half of them, stands behind it. A user's
// own limit comes first, and what is not there last.
constexpr double kAllWeights = 3, kHalf = 0.5, kOwnLimit = 1e9, kNotThere = 1e-9;
constexpr double kWorthIt = 1.05;  // how much faster a change makes a run that fits
constexpr int64_t kUnlimited = int64_t{1} << 54;
constexpr int64_t kFewestTokens = 128;  // smallest sequence or chunk worth suggesting
constexpr int64_t kMostChunks = 512;    // per micro-batch: each chunk has its own calls

// From the most exact to the smallest.
constexpr StateFormat kFormats[] = {
    {MomentFormat::bf16, MasterFormat::fp32},
    {MomentFormat::int8, MasterFormat::fp32},
    {MomentFormat::int8, MasterFormat::stochastic},
};

int64_t state_bytes(const Workload& w) {
  int64_t bytes = 0;
  for (int64_t r = 0; r < w.record_count(); ++r) bytes += w.low_bytes(r) + 2 * w.moment_bytes(r);
  return bytes;
}

std::string joined(const std::string& options, const std::string& more) {
  return options.empty() || more.empty() ? options + more : options + " " + more;
}

// A changed configuration and the command-line options that produce it.
struct Changed {
  TrainConfig config;
  std::string options;
  std::string note = {};
  double weight = kAllWeights;
};

class Suggestions {
 public:
  // Further changes are appended to the options of `base`.
  Suggestions(Changed base, const ModelConfig& model, const PlannedMachine& planned, const TensorTypes& stored,
              const FreeStep& free)
      : base_(std::move(base)), model_(model), planned_(planned), stored_(stored), free_(free), given_(inputs(base_)) {}

  std::vector<Suggestion> take() {
    if (fit(given_)) {  // the earlier changes are enough
      if (!base_.options.empty()) push(base_);
    } else if (fit_with(&Budgets::host_bytes, kUnlimited)) {
      change_host();
    } else {
      change_device();
    }
    return best();
  }

  std::vector<Suggestion> faster_than(double tokens_per_s) {
    least_speed_ = kWorthIt * tokens_per_s;
    larger_batch();
    if (base_.config.memory.gpu_bytes) {
      Changed change = changed("--memory.gpu=auto");
      change.config.memory.gpu_bytes.reset();
      fits(change);
    }
    if (base_.config.state.moments == "fp32" && base_.config.adapter.rank == 0) {
      Changed change = changed("--state.moments=int8");
      change.config.state.moments = "int8";
      change.note = "another optimizer state is another training";
      fits(change);
    }
    if (base_.config.optim.clip > 0) {
      Changed change = changed("--optim.clip=0");
      change.config.optim.clip = 0;
      change.note = "without clipping, updates need not wait for the norm";
      fits(change);
    }
    adapters();
    return best();
  }

 private:
  std::vector<Suggestion> best() {
    const auto key = [](const Suggestion& s) { return s.tokens_per_s * s.weight; };
    std::ranges::stable_sort(list_, std::greater<>(), key);
    if (list_.size() > kMost) list_.resize(kMost);
    return std::move(list_);
  }

  Changed changed(const std::string& options) const { return {base_.config, joined(base_.options, options)}; }

  // Sets a budget to `bytes`, rounded up to the value that its option prints. `before` are options that precede it.
  Changed with_budget(const char* key, std::optional<int64_t> TrainConfig::Memory::*field, int64_t bytes,
                      const std::string& before = "") const {
    std::string size = format_bytes_up(bytes);
    std::erase(size, ' ');
    Changed change = changed(joined(before, fmt::format("--{}={}", key, size)));
    change.config.memory.*field = parse_bytes(size);
    return change;
  }

  // A frozen base is as released, if nothing else is known of it.
  TensorTypes types(const Changed& change) const {
    return stored_.empty() && change.config.adapter.rank > 0 ? declared_types(model_) : stored_;
  }
  TrainConfig stepped(const Changed& change, const PlannedMachine& planned) const {
    return with_realistic_step(change.config, model_, planned, types(change), free_);
  }
  PlanInputs inputs(const Changed& change) const {
    return plan_inputs(stepped(change, planned_), model_, planned_, types(change), true);
  }

  // Reports the speed from a complete plan of the changed configuration; the search itself plans quickly.
  void push(const Changed& change, const PlannedMachine& planned) {
    const auto found = fit(plan_inputs(stepped(change, planned), model_, planned, types(change)));
    if (!found || found->outlook.tokens_per_s < least_speed_) return;
    list_.push_back({.change = change.options,
                     .note = change.note,
                     .tokens_per_s = found->outlook.tokens_per_s,
                     .weight = change.weight});
  }
  void push(const Changed& change) { push(change, planned_); }
  bool fits(const Changed& change) {
    const bool found = fit(inputs(change)).has_value();
    if (found) push(change);
    return found;
  }

  std::optional<Fit> fit_with(int64_t Budgets::*budget, int64_t bytes) const {
    PlanInputs given = given_;
    given.budgets.*budget = bytes;
    return fit(given);
  }

  // The smallest budget with which a plan fits, within 1%; nothing if `most` is not enough.
  std::optional<int64_t> least(int64_t Budgets::*budget, int64_t most) const {
    const std::optional<Fit> found = fit_with(budget, most);
    if (!found) return {};
    const bool host = budget == &Budgets::host_bytes;
    int64_t low = given_.budgets.*budget, high = host ? found->need.host_bytes() : found->need.hbm_bytes();
    while (high - low > high / 100) {
      const int64_t middle = low + (high - low) / 2;
      if (fit_with(budget, middle)) {
        high = middle;
      } else {
        low = middle;
      }
    }
    return high;
  }

  // Changes for a device that lacks memory. If the host lacks some too, its changes are combined with the nearest of
  // these.
  void change_device() {
    std::optional<Changed> nearest;  // the first change that makes the device's memory suffice
    raise_gpu(nearest);
    smaller_micro_batch(nearest);
    smaller_chunks(nearest);
    if (list_.empty() && !nearest) smaller_batch(nearest);
    shorter_sequences(nearest);
    if (list_.empty() && nearest) list_ = Suggestions(*nearest, model_, planned_, stored_, free_).take();
    if (list_.size() < kMost) adapters();
  }

  // More tokens a step, for what does not grow with them.
  void larger_batch() {
    if (free_.batch || base_.config.batch * base_.config.seq_len >= kMostHidingTokens) return;
    constexpr int64_t kTimes = 4;
    Changed change = changed(fmt::format("--batch={}", base_.config.batch * kTimes));
    change.config.batch *= kTimes;
    change.note = "another batch is another training";
    fits(change);
  }

  // Trains adapters over a frozen base instead of all weights.
  void adapters() {
    constexpr int64_t kRank = 16;
    const TrainConfig& config = base_.config;
    if (config.adapter.rank > 0 || !config.freeze.empty() || !config.train_only.empty()) return;
    if (config.state.master != "fp32" || config.precision != "bf16") return;
    Changed change = changed(fmt::format("--adapter.rank={}", kRank));
    change.config.adapter.rank = kRank;
    change.note = "LoRA: the model is frozen, and adapters are trained";
    change.weight = 1;
    fits(change);
  }

  // Whether a change makes the device's memory suffice. It is suggested only if the host's memory suffices too.
  bool makes_room(const Changed& change, std::optional<Changed>& nearest) {
    if (fits(change)) return true;
    PlanInputs roomy = inputs(change);
    roomy.budgets.host_bytes = kUnlimited;
    if (!fit(roomy)) return false;
    if (!nearest) nearest = change;
    return true;
  }

  void raise_gpu(std::optional<Changed>& nearest) {
    const int64_t most = planned_.budgets.gpu_bytes;
    if (given_.budgets.gpu_bytes >= most) return;
    if (const auto enough = least(&Budgets::gpu_bytes, most)) {
      Changed change = with_budget("memory.gpu", &TrainConfig::Memory::gpu_bytes, *enough);
      change.weight = kOwnLimit;
      push(change);
      return;
    }
    Changed change = changed("--memory.gpu=auto");
    change.config.memory.gpu_bytes.reset();
    makes_room(change, nearest);
  }

  void smaller_micro_batch(std::optional<Changed>& nearest) {
    for (int64_t micro = base_.config.micro_batch / 2; micro >= 1; micro /= 2) {
      if (base_.config.batch % micro != 0) continue;
      Changed change = changed(fmt::format("--micro_batch={}", micro));
      change.config.micro_batch = micro;
      if (makes_room(change, nearest)) return;
    }
  }

  void smaller_chunks(std::optional<Changed>& nearest) {
    const TrainConfig& config = base_.config;
    const RunIdentity identity = make_identity(config, model_);
    const int64_t fewest = std::max(kFewestTokens, identity.micro_tokens / kMostChunks);
    for (const auto& [mlp, head] : {std::pair{true, false}, {false, true}, {true, true}}) {
      for (int64_t m = identity.mlp_chunk / 2, h = identity.head_chunk / 2;
           (!mlp || m >= fewest) && (!head || h >= fewest); m /= 2, h /= 2) {
        Changed change = changed(joined(mlp ? fmt::format("--mlp_chunk={}", m) : "",  //
                                        head ? fmt::format("--head_chunk={}", h) : ""));
        if (mlp) change.config.mlp_chunk = m;
        if (head) change.config.head_chunk = h;
        if (makes_room(change, nearest)) return;
      }
    }
  }

  // The gradients of embedding rows grow with the tokens of a step.
  void smaller_batch(std::optional<Changed>& nearest) {
    for (int64_t batch = base_.config.batch / 2; batch >= 1; batch /= 2) {
      Changed change = changed(fmt::format("--batch={} --micro_batch=1", batch));
      change.config.batch = batch;
      change.config.micro_batch = 1;
      if (makes_room(change, nearest)) return;
    }
  }

  // Also sets the micro-batch, whose default would otherwise follow the sequence length.
  void shorter_sequences(std::optional<Changed>& nearest) {
    for (const int64_t micro : {base_.config.micro_batch, int64_t{1}}) {
      for (int64_t length = base_.config.seq_len / 2; length >= kFewestTokens; length /= 2) {
        Changed change = changed(fmt::format("--seq_len={} --micro_batch={}", length, micro));
        change.config.seq_len = length;
        change.config.micro_batch = micro;
        change.weight = kHalf;
        if (makes_room(change, nearest)) return;
      }
    }
  }

  // Changes for a host that lacks memory.
  void change_host() {
    raise_host();
    leave_base_in_files();
    if (!smaller_state(base_)) without_clipping();
    adapters();
    raise_disk();
    upper_half();
    if (list_.size() < kMost) more_ram();
  }

  void raise_host() {
    const int64_t most = planned_.budgets.host_bytes;
    if (given_.budgets.host_bytes >= most) return;
    const auto enough = least(&Budgets::host_bytes, most);
    if (!enough) return;
    Changed change = with_budget("memory.host", &TrainConfig::Memory::host_bytes, *enough);
    change.weight = kOwnLimit;
    push(change);
  }

  // Bit-identical results, at the speed of the drive that holds the model's files.
  void leave_base_in_files() {
    if (base_.config.memory.base != "host") return;
    Changed change = changed("--memory.base=auto");
    change.config.memory.base = "auto";
    change.weight = kOwnLimit;
    fits(change);
  }

  // Bit-identical results, at the speed of the machine's disk.
  void raise_disk() {
    const int64_t there = planned_.limits.disk_bytes, most = there > 0 ? disk_budget(there) : kUnlimited;
    if (given_.budgets.disk_bytes >= most) return;
    const auto found = fit_with(&Budgets::disk_bytes, most);
    if (!found) return;
    const bool path = !base_.config.memory.nvme_path.empty();
    Changed change = with_budget("memory.nvme", &TrainConfig::Memory::nvme_bytes, found->need.disk_bytes(),
                                 path ? "" : "--memory.nvme_path=DIR");
    if (!path) change.config.memory.nvme_path = "DIR";
    if (path) change.weight = kOwnLimit;
    push(change);
  }

  // Suggests the most exact format that fits, and a less exact one that is faster. True if any fits.
  bool smaller_state(const Changed& base) {
    const int64_t now = state_bytes(given_.workload);
    const double least_before = least_speed_;
    bool any = false;
    for (const StateFormat& format : kFormats) {
      const std::string master = master_name(format.master);
      Changed change{with_state(base.config, format),
                     joined(base.options, fmt::format("--state.moments={}", moments_name(format.moments))), base.note,
                     base.weight};
      if (master != base.config.state.master)
        change.options = joined(change.options, fmt::format("--state.master={}", master));
      if (state_bytes(inputs(change).workload) >= now) continue;
      const size_t before = list_.size();
      if (!fits(change)) continue;
      any = true;
      if (list_.size() > before) least_speed_ = kWorthIt * list_.back().tokens_per_s;
    }
    least_speed_ = least_before;
    return any;
  }

  // Without clipping, gradients need not wait for the norm.
  void without_clipping() {
    if (base_.config.optim.clip <= 0) return;
    Changed change = changed("--optim.clip=0");
    change.config.optim.clip = 0;
    if (!fits(change)) smaller_state(change);
  }

  void upper_half() {
    if (!base_.config.freeze.empty() || !base_.config.train_only.empty() || model_.layers < 2) return;
    const std::vector<std::string> patterns = lower_half(model_);
    Changed change = changed(fmt::format("--freeze={}", fmt::join(patterns, ",")));
    change.config.freeze = patterns;
    change.note = "the embedding and the lower half of the layers are not trained";
    change.weight = kHalf;
    if (!fits(change)) smaller_state(change);
  }

  // The smallest RAM of a machine with this host budget.
  int64_t ram_with(int64_t budget) const {
    const int64_t whole = planned_.gpu ? budget : 2 * budget;  // on the CPU device, the device gets the other half
    int64_t low = whole, high = 2 * whole + 8 * kGiB;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (host_budget(middle) >= whole) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // Suggests more RAM than the machine has.
  void more_ram() {
    const auto enough = least(&Budgets::host_bytes, kUnlimited);
    if (!enough || *enough <= planned_.budgets.host_bytes) return;
    const int64_t there =
        planned_.limits.host_bytes > 0 ? planned_.limits.host_bytes : ram_with(planned_.budgets.host_bytes);
    const std::string more = format_bytes_up(ram_with(*enough) - there);
    Changed change = changed(base_.config.memory.host_bytes ? "--memory.host=auto" : "");
    if (!change.options.empty()) change.options += " and ";
    change.options += more + " more RAM";
    change.config.memory.host_bytes.reset();
    change.weight = kNotThere;
    PlannedMachine larger = planned_;
    larger.budgets.host_bytes = host_budget(there + parse_bytes(more));
    if (!planned_.gpu) larger.budgets.gpu_bytes = larger.budgets.host_bytes /= 2;
    push(change, larger);
  }

  Changed base_;
  const ModelConfig& model_;
  const PlannedMachine& planned_;
  const TensorTypes& stored_;
  FreeStep free_;
  PlanInputs given_;
  double least_speed_ = 0;  // slower changes are left out
  std::vector<Suggestion> list_;
};

}  // namespace

std::vector<Suggestion> what_would_fit(const TrainConfig& config, const ModelConfig& model,
                                       const PlannedMachine& planned, const TensorTypes& stored, const FreeStep& free) {
  Changed base{config, ""};
  base.options = drop_budgets_beyond(planned, base.config);
  if (!config.plan.empty()) {
    base.config.plan.clear();
    base.options = joined(base.options, "--plan=null");
  }
  return Suggestions(std::move(base), model, planned, stored, free).take();
}

std::vector<Suggestion> what_is_faster(const TrainConfig& config, const ModelConfig& model,
                                       const PlannedMachine& planned, const TensorTypes& stored, const FreeStep& free,
                                       double tokens_per_s) {
  if (!config.plan.empty()) return {};
  return Suggestions({config, ""}, model, planned, stored, free).faster_than(tokens_per_s);
}

std::string quoted_for_shell(const std::string& options) {
  std::string text = options;
  const size_t begin = text.find("--freeze=");
  if (begin == std::string::npos) return text;
  const size_t value = begin + std::string("--freeze=").size();
  text.insert(std::min(text.find(' ', value), text.size()), "'");
  return text.insert(value, "'");
}

}  // namespace megatrain
