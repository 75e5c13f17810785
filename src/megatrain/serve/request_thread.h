// One thread that reads requests, which may take a second each, so that the server's thread stays free for what
// streams.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace megatrain {

class RequestThread {
 public:
  RequestThread() : thread_([this] { run(); }) {}
  ~RequestThread();  // finishes what it is in, and drops the rest
  RequestThread(const RequestThread&) = delete;
  RequestThread& operator=(const RequestThread&) = delete;

  // In order, from any thread. The work throws nothing.
  void post(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> works_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace megatrain
