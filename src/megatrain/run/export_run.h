// A Hugging Face directory from a run that has not come to its end, or in another type from one that has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/hub/export.h"
#include "megatrain/tensor/dtype.h"

namespace megatrain {

struct ExportedRun {
  std::string from;  // the checkpoint, or RUN/model
  int64_t step = 0;
  ExportReport files;
};

// `path` is RUN or RUN/checkpoints/step-N. Of a run it takes the newest state: its last checkpoint, or RUN/model when
// that is of a later step. Tensors keep the type they were trained from, unless `type` is given. Either is checked
// against its recorded hash first. Throws Error(bad_config) when `out` is there already.
ExportedRun export_run(const std::string& path, const std::string& out, std::optional<DType> type);

}  // namespace megatrain
