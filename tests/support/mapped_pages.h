// Watches how much of mapped files a process holds in memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

namespace megatrain {

// RssFile of this process.
inline int64_t mapped_bytes_now() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("RssFile:")) return std::stoll(line.substr(8)) * 1024;
  }
  return 0;
}

// The most that an action held beyond what was held before, seen every millisecond.
template <class Action>
int64_t mapped_bytes_of(const Action& action) {
  const int64_t before = mapped_bytes_now();
  std::atomic<bool> done{false};
  std::atomic<int64_t> most{before};
  std::thread watch([&] {
    while (!done) {
      most = std::max(most.load(), mapped_bytes_now());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  action();
  done = true;
  watch.join();
  return most - before;
}

}  // namespace megatrain
