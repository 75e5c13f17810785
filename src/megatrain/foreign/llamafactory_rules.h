// LLaMA-Factory's rules over several keys, and those that no key expresses.
#pragma once

#include "megatrain/foreign/reader.h"

namespace megatrain {

void llamafactory_rules(ForeignReader& reader);

}  // namespace megatrain
