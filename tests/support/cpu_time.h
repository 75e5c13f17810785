// CPU time of this thread, which does not depend on the load of the machine.
#pragma once

#include <ctime>

namespace megatrain {

template <class Work>
double cpu_seconds(const Work& work) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

}  // namespace megatrain
