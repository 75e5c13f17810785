// megatrain.train(): a run, with a Python callback for each step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatrain/python/nanobind.h"

namespace megatrain {

// `text`: of a configuration, called `name` in messages; without it `name` is its file. `on_step` is None or takes a
// Step. Returns the result of the run as JSON. Raises what the callback raised, or KeyboardInterrupt after ctrl-C, both
// once a checkpoint is saved.
std::string train_for_python(const std::string& name, const std::optional<std::string>& text,
                             const std::vector<std::string>& overrides, const nanobind::object& on_step,
                             bool takes_interrupts);

}  // namespace megatrain
