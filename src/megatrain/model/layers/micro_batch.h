// The data that phases have about the tokens of a micro-batch. It is in device memory; the step program fills it.
#pragma once

#include <cstdint>
#include <optional>

#include "megatrain/ops/attention.h"

namespace megatrain {

// The random numbers of a training step depend only on these values, on the purpose they are drawn for and on the
// element. So no plan changes them, and a recomputed forward draws the same ones (base/rng.h).
struct StepRandom {
  uint64_t seed;
  int64_t step;         // from 1
  int64_t micro_batch;  // index within the step
};

// About trained rows of single tokens (token_rows.h).
struct TokenRowTables {
  const int32_t* slot = nullptr;  // (T) the embedding's trained row that a token has, or -1
  // The sorted segments of the tokens that have one, for its gradient.
  const int32_t* order = nullptr;  // (T)
  const int32_t* begin = nullptr;  // (U + 1)
  const int32_t* row = nullptr;    // (U)
  int64_t segments = 0;            // U
  const int32_t* head = nullptr;   // ids of the output matrix's trained rows
};

struct MicroBatchView {
  int64_t tokens = 0;                  // T
  const int32_t* row = nullptr;        // (T) row of the gathered embedding table
  const int32_t* labels = nullptr;     // (T)
  const int32_t* positions = nullptr;  // (T)
  const int32_t* counted = nullptr;    // (T) not 0: the token counts for the router's losses and statistics
  Documents documents{};
  // The sorted segments for the embedding's backward.
  const int32_t* segment_order = nullptr;  // (T)
  const int32_t* segment_begin = nullptr;  // (U + 1)
  const int32_t* segment_row = nullptr;    // (U)
  int64_t segments = 0;                    // U

  TokenRowTables token_rows{};         // empty if there are none
  std::optional<StepRandom> random{};  // empty in evaluation
};

}  // namespace megatrain
