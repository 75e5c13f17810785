// `megatrain plan --what-fits`.
#pragma once

#include "megatrain/config/arguments.h"

namespace megatrain {

// Prints the table, or its JSON. Returns the exit code.
int print_what_fits(const Arguments& arguments);

}  // namespace megatrain
