// Axolotl's rules over several keys: datasets, steps, warmup, saves. docs/coming-from.md says how it counts.
#pragma once

#include "megatrain/foreign/reader.h"

namespace megatrain {

void axolotl_rules(ForeignReader& r);

}  // namespace megatrain
