// The values of LLaMA-Factory's `template`.
#pragma once

#include "megatrain/foreign/reader.h"

namespace megatrain {

// Throws Error(bad_config) for a name that no version of LLaMA-Factory has.
void check_factory_template(const ForeignReader& reader);

}  // namespace megatrain
