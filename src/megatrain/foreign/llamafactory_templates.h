// LLaMA-Factory's `template` and `enable_thinking`.
#pragma once

#include "megatrain/foreign/reader.h"

namespace megatrain {

// Translates a template that is built in here, and records that others have no effect. Throws Error(bad_config) for a
// name that no version of LLaMA-Factory has, and for a switch that would be ignored.
void factory_template(ForeignReader& reader);

}  // namespace megatrain
