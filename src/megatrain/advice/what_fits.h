// The table people ask for first: which models can be trained on a machine, in which mode, and how fast.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megatrain/train/setup.h"

namespace megatrain {

struct FitRow {
  std::string model;
  int64_t parameters = 0;
  std::string mode;  // one of fit_modes()
  bool fits = false;
  // What it needs, whether it fits or not. A frozen base that steps read from its own files counts as on disk.
  int64_t ram_bytes = 0, hbm_bytes = 0, disk_bytes = 0;
  double tokens_per_s = 0;  // 0 if it does not fit
  int64_t batch = 0, seq_len = 0;
  StateFormat state;
};

// Full fine-tuning by state format, training only the upper half, adapters of rank 16, and the longest context.
const std::vector<std::string>& fit_modes();

// The rows of a model in all modes. It is called for the smallest model first, as soon as its rows and those of all
// smaller models are known, by one thread at a time.
using ModelFitted = std::function<void(const std::vector<FitRow>&)>;

// All given presets in all modes, smallest model first. A step has enough tokens to hide the optimizer's update behind
// compute, or with adapters the weights that come over the link, unless `batch_given`, and sequences of config.seq_len.
std::vector<FitRow> what_fits(const std::vector<std::string>& presets, const TrainConfig& config, bool batch_given,
                              const PlannedMachine& planned, const ModelFitted& fitted = {});

// A table with one line per model: tokens/s, or "no". Its lines are made one by one.
class FitTable {
 public:
  explicit FitTable(const std::vector<std::string>& models);
  std::string header() const;
  std::string line(const std::vector<FitRow>& of_model) const;

 private:
  size_t name_columns_;
};

// What a GPU would change for a machine that has none.
struct GpuGain {
  FitRow here, with_gpu;        // the same model in the most exact mode that fits here
  int64_t least_gpu_bytes = 0;  // of GPU memory with which it fits, in sizes that GPUs have
};
// For a few presets. `gpu` is a machine with a GPU and the memory of this one.
std::vector<GpuGain> gpu_gains(const TrainConfig& config, const PlannedMachine& planned, const PlannedMachine& gpu);

}  // namespace megatrain
