// What a step's callback gets: megatrain.Step.
#pragma once

#include "megatrain/python/nanobind.h"

namespace megatrain {

void bind_step(nanobind::module_& module);

}  // namespace megatrain
