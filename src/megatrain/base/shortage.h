// Turns exceptions of the standard library into errors for a person: which resource of the machine, or which limit of
// the process, ran out.
#pragma once

#include <exception>

#include "megatrain/base/error.h"

namespace megatrain {

// True for an errno that means out of memory or out of file descriptors, whatever the system call.
bool is_shortage(int error);

// An Error is returned unchanged. A shortage becomes Error(cannot_fit) that says what ran out and what to do, any other
// file system error Error(io), and everything else Error(internal).
Error as_error(const std::exception& error);

}  // namespace megatrain
