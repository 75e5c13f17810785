// Merges adapters into the weights that they were trained on: a whole Hugging Face directory, tensor by tensor, so that
// no model is ever held in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/hub/export.h"
#include "megatrain/tensor/dtype.h"

namespace megatrain {

struct MergedModel {
  ExportReport files;
  int64_t adapted = 0;  // weights that an adapter adds to
  int64_t still = 0;    // of these, the ones that rounding brings back to the base's value
};

// Writes W + s B A, with DoRA times m / |W + s B A| by rows, computed in fp32 and rounded once, into the new directory
// `out`. Tensors keep the dtype that the base stores them in (MXFP4 and fp8: bf16), unless `type` is given. Throws
// Error(bad_input) for an adapter of another base, and Error(bad_config) when `out` exists.
MergedModel merge_adapter(const std::string& base, const std::string& adapter, const std::string& out,
                          std::optional<DType> type, int threads);

}  // namespace megatrain
