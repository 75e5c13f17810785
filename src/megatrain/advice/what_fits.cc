#include "megatrain/advice/what_fits.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "megatrain/advice/longest_context.h"
#include "megatrain/advice/plan_inputs.h"
#include "megatrain/advice/realistic_step.h"
#include "megatrain/base/units.h"
#include "megatrain/host/parallel.h"
#include "megatrain/model/model.h"
#include "megatrain/model/model_source.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/presets.h"

namespace megatrain {

namespace {

struct Mode {
  const char* name;
  StateFormat format = {};
  bool upper_half = false;
  int64_t rank = 0;  // of adapters
  bool longest = false;
};
constexpr Mode kModes[] = {
    {.name = "fp32"},
    {.name = "bf16", .format = {.moments = MomentFormat::bf16}},
    {.name = "int8", .format = {.moments = MomentFormat::int8}},
    {.name = "int8+stochastic", .format = {.moments = MomentFormat::int8, .master = MasterFormat::stochastic}},
    {.name = "upper half", .upper_half = true},
    {.name = "LoRA", .rank = 16},
    {.name = "longest context", .longest = true},
};
constexpr size_t kFullModes = 4;  // by state format, the most exact first

constexpr int64_t kLongest = 1 << 17;  // tokens per sequence
constexpr int64_t kNoLimit = int64_t{1} << 54;

// The types of a frozen base: of an MXFP4 release the experts stay packed.
TensorTypes released_types(ModelConfig model) {
  model.mxfp4_experts = true;  // of families whose files may be in MXFP4
  return declared_types(model);
}

// The rows of one model on a machine.
class ModelFits {
 public:
  ModelFits(const std::string& name, const TrainConfig& config, bool batch_given, const PlannedMachine& planned)
      : name_(name),
        config_(config),
        batch_given_(batch_given),
        planned_(planned),
        model_(parse_model_config(*preset_config(name), name)),
        stored_(declared_types(model_)),
        released_(released_types(model_)) {}

  std::vector<FitRow> rows() const {
    std::vector<FitRow> rows;
    const Mode* exact = nullptr;  // the most exact format that fits
    for (const Mode& mode : kModes) {
      rows.push_back(mode.longest ? longest(mode, exact) : row(mode, mode, config_.seq_len));
      if (!exact && rows.back().fits && rows.size() <= kFullModes) exact = &mode;
    }
    return rows;
  }

  bool fits_in(const std::string& mode) const {
    const auto named = std::ranges::find_if(kModes, [&](const Mode& m) { return m.name == mode; });
    return row(*named, *named, config_.seq_len, false).fits;
  }

 private:
  TrainConfig config_of(const Mode& mode, int64_t seq_len) const {
    TrainConfig config = with_state(config_, mode.format);
    config.seq_len = seq_len;
    if (mode.upper_half) config.freeze = lower_half(model_);
    if (mode.rank > 0) config.adapter = {.rank = mode.rank, .alpha = 2.0 * static_cast<double>(mode.rank)};
    return config;
  }
  const TensorTypes& stored(const Mode& mode) const { return mode.rank > 0 ? released_ : stored_; }

  // A step has at least `least_tokens`, unless a batch is given.
  int64_t batch_of(const Mode& mode, int64_t seq_len, int64_t least_tokens = 0) const {
    if (batch_given_) return config_.batch;
    return hiding_batch(config_of(mode, seq_len), model_, planned_, stored(mode), least_tokens);
  }

  // `micro_tokens` limits micro-batches of several sequences.
  PlanInputs inputs(const Mode& mode, int64_t seq_len, int64_t batch, int64_t micro_tokens, FitRow& row) const {
    TrainConfig config = config_of(mode, seq_len);
    config.batch = batch;
    config.micro_batch = even_micro_batch(batch, seq_len, micro_tokens);
    PlanInputs made = plan_inputs(config, model_, planned_, stored(mode), true);
    row = {.model = name_,
           .parameters = made.workload.parameters - (mode.rank > 0 ? made.workload.trained_parameters : 0),
           .mode = mode.name,
           .batch = batch,
           .seq_len = seq_len,
           .state = mode.format};
    return made;
  }

  static void take(FitRow& row, const Fit& found) {
    row.hbm_bytes = found.need.hbm_bytes();
    row.ram_bytes = found.need.host_bytes();
    row.disk_bytes = found.need.disk_bytes() + found.need.file_bytes();
  }

  // A base that is read from a drive needs more tokens a step than the link alone.
  void try_largest_step(const Mode& mode, int64_t seq_len, int64_t micro_tokens, FitRow& row) const {
    FitRow larger;
    const auto found = fit(inputs(mode, seq_len, batch_of(mode, seq_len, kMostHidingTokens), micro_tokens, larger));
    if (!found || found->outlook.tokens_per_s <= row.tokens_per_s) return;
    take(larger, *found);
    larger.fits = true;
    larger.tokens_per_s = found->outlook.tokens_per_s;
    row = larger;
  }

  FitRow row(const Mode& as, const Mode& mode, int64_t seq_len, bool needs = true) const {
    FitRow row;
    PlanInputs made;
    const int64_t batch = batch_of(mode, seq_len);
    for (const int64_t micro_tokens : {kMicroTokens, int64_t{1}}) {  // then one sequence at a time
      made = inputs(mode, seq_len, batch, micro_tokens, row);
      row.mode = as.name;
      if (const auto found = fit(made)) {
        take(row, *found);
        row.fits = true;
        row.tokens_per_s = found->outlook.tokens_per_s;
        if (mode.rank > 0 && row.disk_bytes > 0) try_largest_step(mode, seq_len, micro_tokens, row);
        return row;
      }
    }
    if (!needs) return row;
    made.budgets.host_bytes = kNoLimit;
    made.budgets.disk_bytes = 0;
    auto found = fit(made);
    if (!found) {
      made.budgets.gpu_bytes = kNoLimit;
      found = fit(made);
    }
    take(row, *found);
    return row;
  }

  // Uses the most exact format in which the model fits at all.
  FitRow longest(const Mode& as, const Mode* exact) const {
    FitRow best = row(as, exact ? *exact : kModes[kFullModes - 1], config_.seq_len);
    if (!best.fits) return best;
    TrainConfig alone = with_state(config_, exact->format);
    if (!batch_given_) alone.batch = 1;
    const int64_t most = std::min(longest_context(alone, model_, planned_, stored_), kLongest);
    if (FitRow tried = row(as, *exact, std::max(most, config_.seq_len), false); tried.fits) return tried;
    // a step large enough to hide the optimizer may have more sequences than fit at that length
    int64_t low = 0, high = 0;  // doublings known to fit, and the most that might
    while ((config_.seq_len << (high + 1)) <= kLongest) ++high;
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      FitRow tried = row(as, *exact, config_.seq_len << middle, false);
      if (tried.fits) {
        best = std::move(tried);
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return best;
  }

  std::string name_;
  const TrainConfig& config_;
  bool batch_given_;
  const PlannedMachine& planned_;
  ModelConfig model_;
  TensorTypes stored_, released_;
};

std::string cell(const FitRow& row) {
  if (!row.fits) return "no";
  const std::string speed = fmt::format("{:.0f}", row.tokens_per_s);
  if (row.mode != std::string("longest context")) return speed;
  const bool stochastic = row.state.master == MasterFormat::stochastic;
  return fmt::format("{}k: {} in {}{}", row.seq_len / 1024, speed, moments_name(row.state.moments),
                     stochastic ? "+stochastic" : "");
}

}  // namespace

const std::vector<std::string>& fit_modes() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Mode& mode : kModes) names.emplace_back(mode.name);
    return names;
  }();
  return kNames;
}

namespace {

int64_t parameters_of(const std::string& preset) {
  int64_t sum = 0;
  for (const LayerLayout& layout : model_layouts(parse_model_config(*preset_config(preset), preset)))
    sum += layout.parameters();
  return sum;
}

std::vector<std::string> smallest_first(const std::vector<std::string>& names) {
  std::vector<std::pair<int64_t, std::string>> sized;
  for (const std::string& name : names) sized.emplace_back(parameters_of(name), name);
  std::ranges::stable_sort(sized, {}, &std::pair<int64_t, std::string>::first);
  std::vector<std::string> sorted;
  for (const auto& [parameters, name] : sized) sorted.push_back(name);
  return sorted;
}

}  // namespace

std::vector<FitRow> what_fits(const std::vector<std::string>& names, const TrainConfig& config, bool batch_given,
                              const PlannedMachine& planned, const ModelFitted& fitted) {
  const std::vector<std::string> sorted = smallest_first(names);
  std::vector<std::vector<FitRow>> by_model(sorted.size());
  PlannedMachine any_thread = planned;  // use the bound for scratch: the library cannot be queried from several threads
  any_thread.ops = nullptr;
  std::mutex mutex;
  size_t told = 0;  // models whose rows `fitted` got
  parallel_for(static_cast<int>(config.threads), std::ssize(sorted), [&](int64_t i) {
    const size_t at = static_cast<size_t>(i);
    std::vector<FitRow> rows = ModelFits(sorted[at], config, batch_given, any_thread).rows();
    std::lock_guard lock(mutex);
    by_model[at] = std::move(rows);
    for (; told < by_model.size() && !by_model[told].empty(); ++told) {
      if (fitted) fitted(by_model[told]);
    }
  });
  std::vector<FitRow> rows;
  for (const std::vector<FitRow>& of_model : by_model) rows.insert(rows.end(), of_model.begin(), of_model.end());
  return rows;
}

FitTable::FitTable(const std::vector<std::string>& models) : name_columns_(std::string("model").size()) {
  for (const std::string& model : models) name_columns_ = std::max(name_columns_, model.size());
}

namespace {

constexpr size_t kSpeedColumns = 7;  // of "144,010"
size_t width_of(const std::string& mode) { return std::max(mode.size(), kSpeedColumns); }

}  // namespace

std::string FitTable::header() const {
  std::string text = fmt::format("{:<{}}", "model", name_columns_);
  for (const std::string& mode : fit_modes()) text += fmt::format("  {:>{}}", mode, width_of(mode));
  return text + "\n";
}

std::string FitTable::line(const std::vector<FitRow>& of_model) const {
  std::string text = fmt::format("{:<{}}", of_model.front().model, name_columns_);
  for (const FitRow& row : of_model) text += fmt::format("  {:>{}}", cell(row), width_of(row.mode));
  return text + "\n";
}

std::vector<GpuGain> gpu_gains(const TrainConfig& config, const PlannedMachine& planned, const PlannedMachine& gpu) {
  constexpr const char* kModels[] = {"qwen3-0.6b", "qwen2.5-1.5b", "qwen2.5-7b"};
  constexpr int64_t kSizes[] = {4, 6, 8, 12, 16, 24, 32, 48, 80, 96, 141};  // GiB
  std::vector<GpuGain> gains;
  for (const char* model : kModels) {
    const std::vector<FitRow> here = ModelFits(model, config, false, planned).rows(),
                              there = ModelFits(model, config, false, gpu).rows();
    for (size_t mode = 0; mode < here.size(); ++mode) {
      if (!here[mode].fits || !there[mode].fits) continue;
      gains.push_back({.here = here[mode], .with_gpu = there[mode]});
      break;
    }
    if (gains.empty() || gains.back().here.model != model) continue;
    for (const int64_t size : kSizes) {
      PlannedMachine small = gpu;
      small.budgets.gpu_bytes = size * kGiB;
      const ModelFits fits(model, config, false, small);
      if (!fits.fits_in(gains.back().here.mode)) continue;
      gains.back().least_gpu_bytes = size * kGiB;
      break;
    }
  }
  return gains;
}

}  // namespace megatrain
