// Exports a Hugging Face directory from a run that is not complete, or from a complete one in another dtype.
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

// `path` is RUN or RUN/checkpoints/step-N. RUN means its newest state: the last checkpoint, or RUN/model if that has a
// later step. Tensors keep the dtype they were trained from, unless `type` is given. The source is first checked
// against its recorded hash. Throws Error(bad_config) when `out` exists.
ExportedRun export_run(const std::string& path, const std::string& out, std::optional<DType> type);

}  // namespace megatrain
