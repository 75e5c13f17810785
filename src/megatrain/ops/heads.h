// Moves the columns of heads between matrices whose heads lie at other distances: latent attention makes keys and
// values from parts of which some are the same for all heads.
#pragma once

#include <cstdint>

#include "megatrain/tensor/view.h"

namespace megatrain {

// to[t][to_begin + h to_step + i] = from[t][from_begin + h from_step + i], for h < heads and i < width. All heads may
// read the same columns (from_step 0), or be added up (to_step 0): in order, in fp32, and rounded once.
struct MoveHeads {
  View from, to;  // (T, ...) of one dtype, which do not overlap
  int64_t heads = 0;
  int64_t width = 0;
  int64_t from_begin = 0;
  int64_t from_step = 0;
  int64_t to_begin = 0;
  int64_t to_step = 0;
  int64_t zeros = 0;      // columns behind each head in `to` that become 0
  bool add = false;       // to += instead of to =, in fp32 and rounded once; only with a to_step and without zeros
  bool backward = false;  // it moves gradients; only for cost estimates
};

}  // namespace megatrain
