// The table people ask for first: which models can be trained on a machine, in which mode, and how fast.
#pragma once

#include <cstdint>
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

// All given presets in all modes, smallest model first. A step has enough tokens to hide the optimizer's update behind
// compute, or with adapters the weights that come over the link, unless `batch_given`, and sequences of config.seq_len.
std::vector<FitRow> what_fits(const std::vector<std::string>& presets, const TrainConfig& config, bool batch_given,
                              const PlannedMachine& planned);

// The same as a table with one line per model: tokens/s, or "no".
std::string what_fits_text(const std::vector<FitRow>& rows);

}  // namespace megatrain
