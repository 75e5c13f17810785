// Single columns of a wide matrix, beside it in a narrow one.
#pragma once

#include <cstdint>

#include "megatrain/tensor/view.h"

namespace megatrain {

// put:   wide[t][columns[j]] = narrow[t][j]
// take:  narrow[t][j] = wide[t][columns[j]], which becomes 0
struct MoveColumns {
  View wide;               // (T, V)
  const int32_t* columns;  // (n) distinct
  View narrow;             // (T, n) of the same dtype
  bool take = false;
};

}  // namespace megatrain
