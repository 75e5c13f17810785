// What Axolotl's keys say together: datasets, steps, warmup, saves. Its counting is in docs/coming-from.md.
#pragma once

#include "megatrain/foreign/reader.h"

namespace megatrain {

void axolotl_rules(ForeignReader& r);

}  // namespace megatrain
