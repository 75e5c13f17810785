// megatrain._core.Model: a loaded model that answers and scores.
#pragma once

#include "megatrain/python/nanobind.h"

namespace megatrain {

void bind_model(nanobind::module_& module);

}  // namespace megatrain
