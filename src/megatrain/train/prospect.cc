#include "megatrain/train/prospect.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/train/site.h"

namespace megatrain {

Prospect prospect_of(const TrainConfig& config, const ModelConfig& model, const Site& site) {
  const RunIdentity identity = make_identity(config, model);
  return {.workload = make_workload(config, model, identity, site),
          .budgets = make_budgets(config, site),
          .profile = profile_for(site.profile, config, model, identity)};
}

std::optional<Fit> fit(const Prospect& p) {
  try {
    const Plan plan = make_plan(p.workload, p.budgets, p.profile, nullptr);
    return Fit{.plan = plan, .outlook = outlook(p.workload, plan, p.profile), .need = memory_need(p.workload, plan)};
  } catch (const Error& error) {
    if (error.code() != ExitCode::cannot_fit) throw;
    return {};
  }
}

TrainConfig with_state(TrainConfig config, const StateFormat& format) {
  config.state.moments = moments_name(format.moments);
  config.state.master = master_name(format.master);
  return config;
}

std::vector<std::string> lower_half(int64_t layers) {
  std::vector<std::string> patterns = {"model.embed_tokens.*"};
  const int64_t half = layers / 2;  // the numbers 0 ... half - 1
  for (int64_t ten = 0; ten * 10 < half; ++ten) {
    const int64_t last = std::min<int64_t>(half - ten * 10, 10) - 1;
    patterns.push_back(fmt::format("model.layers.{}{}.*", ten > 0 ? std::to_string(ten) : "",
                                   last > 0 ? fmt::format("[0-{}]", last) : "0"));
  }
  return patterns;
}

namespace {

// From the exact to the smallest.
constexpr StateFormat kFormats[] = {
    {MomentFormat::bf16, MasterFormat::fp32},
    {MomentFormat::int8, MasterFormat::fp32},
    {MomentFormat::int8, MasterFormat::stochastic},
};

// As on the command line.
std::string keys_of(const StateFormat& format) {
  return fmt::format("state.moments={}{}", moments_name(format.moments),
                     format.master == MasterFormat::stochastic ? " state.master=stochastic" : "");
}

int64_t state_bytes(const Workload& w) {
  int64_t bytes = 0;
  for (int64_t r = 0; r < w.record_count(); ++r) bytes += w.low_bytes(r) + 2 * w.moment_bytes(r);
  return bytes;
}

std::string no_space(std::string text) {
  std::erase(text, ' ');
  return text;
}

class Suggestions {
 public:
  Suggestions(const TrainConfig& config, const ModelConfig& model, const Site& site)
      : config_(config), model_(model), site_(site), given_(prospect_of(config, model, site)) {}

  std::vector<Suggestion> take() {
    smaller_step();
    disk();
    if (!smaller_state(config_, "")) without_clipping();
    upper_half();
    more_ram();
    if (list_.size() > kMost) list_.resize(kMost);
    return std::move(list_);
  }

 private:
  static constexpr size_t kMost = 3;

  bool fits(const Prospect& prospect, const std::string& change) {
    const auto found = fit(prospect);
    if (found) list_.push_back({.change = change, .tokens_per_s = found->outlook.tokens_per_s});
    return found.has_value();
  }
  bool fits(const TrainConfig& config, const std::string& change) {
    return fits(prospect_of(config, model_, site_), change);
  }

  // Whether a plan fits once the host has no limit: then the device has room for it.
  std::optional<Fit> without_host_limit() const {
    Prospect prospect = given_;
    prospect.budgets.host_bytes = kUnlimited;
    return fit(prospect);
  }

  // Fewer tokens at a time: of use where the device lacks memory.
  void smaller_step() {
    if (without_host_limit()) return;
    TrainConfig config = config_;
    for (int64_t micro = config_.micro_batch / 2; micro >= 1; micro /= 2) {
      if (config_.batch % micro != 0) continue;
      config.micro_batch = micro;
      if (fits(config, fmt::format("micro_batch={}", micro))) return;
    }
    config.batch = config.micro_batch = 1;
    if (config_.batch > 1 && fits(config, "batch=1 micro_batch=1")) return;
    constexpr int64_t kShortest = 128;
    for (int64_t length = config_.seq_len / 2; length >= kShortest; length /= 2) {
      config.seq_len = length;
      if (fits(config,
               config_.batch > 1 ? fmt::format("batch=1 seq_len={}", length) : fmt::format("seq_len={}", length)))
        return;
    }
  }

  // The same bits, at the speed of the machine's disk.
  void disk() {
    if (given_.budgets.disk_bytes > 0) return;
    Prospect prospect = given_;
    prospect.budgets.disk_bytes = site_.profile.disk_bytes > 0 ? disk_budget(site_.profile.disk_bytes) : kUnlimited;
    if (const auto found = fit(prospect); found && found->need.disk_bytes() > 0)
      list_.push_back({.change = fmt::format("memory.nvme_path=DIR memory.nvme={}",
                                             no_space(format_bytes_up(found->need.disk_bytes()))),
                       .tokens_per_s = found->outlook.tokens_per_s});
  }

  // The format nearest to the exact one.
  bool smaller_state(const TrainConfig& config, const std::string& beside) {
    const int64_t now = state_bytes(given_.workload);
    for (const StateFormat& format : kFormats) {
      const Prospect prospect = prospect_of(with_state(config, format), model_, site_);
      if (state_bytes(prospect.workload) < now && fits(prospect, keys_of(format) + beside)) return true;
    }
    return false;
  }

  // A gradient then waits for no norm.
  void without_clipping() {
    TrainConfig config = config_;
    config.optim.clip = 0;
    if (config_.optim.clip > 0 && !fits(config, "optim.clip=0")) smaller_state(config, " optim.clip=0");
  }

  void upper_half() {
    TrainConfig config = config_;
    if (!config.freeze.empty() || !config.train_only.empty() || model_.layers < 2) return;
    config.freeze = lower_half(model_.layers);
    const std::string change =
        fmt::format("freeze={} (the embedding and the lower half)", fmt::join(config.freeze, ","));
    if (!fits(config, change)) smaller_state(config, " " + change);
  }

  void more_ram() {
    if (list_.size() >= kMost) return;
    std::optional<Fit> found = without_host_limit();
    if (!found) return;
    // the least within one part in a hundred
    Prospect prospect = given_;
    int64_t low = given_.budgets.host_bytes, high = found->need.host_bytes();
    while (high - low > high / 100) {
      prospect.budgets.host_bytes = low + (high - low) / 2;
      if (auto tried = fit(prospect)) {
        found = std::move(tried);
        high = prospect.budgets.host_bytes;
      } else {
        low = prospect.budgets.host_bytes;
      }
    }
    const int64_t more = high - given_.budgets.host_bytes;
    list_.push_back({.change = fmt::format("{} more RAM", format_bytes_up(more + more / 31)),
                     .tokens_per_s = found->outlook.tokens_per_s});
  }

  static constexpr int64_t kUnlimited = int64_t{1} << 54;

  const TrainConfig& config_;
  const ModelConfig& model_;
  const Site& site_;
  Prospect given_;
  std::vector<Suggestion> list_;
};

}  // namespace

std::vector<Suggestion> what_would_fit(const TrainConfig& config, const ModelConfig& model, const Site& site) {
  return Suggestions(config, model, site).take();
}

}  // namespace megatrain
