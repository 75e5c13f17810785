// What several keys of LLaMA-Factory say together, and its rules that no key says.
#pragma once

#include "megatrain/foreign/reader.h"

namespace megatrain {

void llamafactory_rules(ForeignReader& reader);

}  // namespace megatrain
