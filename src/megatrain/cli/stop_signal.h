// SIGINT and SIGTERM as a wish to stop: work that can be gone on with looks at it now and then.
#pragma once

#include <csignal>

namespace megatrain {

// 0 until the first signal, then its number. The handler is then gone, so a second signal ends the process.
const volatile std::sig_atomic_t* watch_stop_signals();

}  // namespace megatrain
