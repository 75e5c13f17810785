// Exceptions of the standard library as errors for a person: what the machine, or a limit of the process, is short of.
#pragma once

#include <exception>

#include "megatrain/base/error.h"

namespace megatrain {

// An errno that says that memory or file descriptors have run out, whatever the system call.
bool is_shortage(int error);

// An Error as it is. A shortage becomes Error(cannot_fit) with what is short and what to do, another error of the file
// system Error(io), anything else Error(internal).
Error as_error(const std::exception& error);

}  // namespace megatrain
