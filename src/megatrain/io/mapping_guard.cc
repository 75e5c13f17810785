#include "megatrain/io/mapping_guard.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/escape.h"

namespace megatrain {

// A node of a list that only grows, so that the handler can walk it at any moment. A node whose `begin` is null is free
// and is reused.
struct WatchedMapping {
  std::atomic<const std::byte*> begin{nullptr};  // written last: a node with a begin is complete
  int64_t bytes = 0;
  std::string sentence;
  WatchedMapping* next = nullptr;
};

namespace {

// A signal handler can only reach globals.
std::atomic<WatchedMapping*> first_mapping{nullptr};
struct sigaction previous_action {};
std::atomic_flag ending = ATOMIC_FLAG_INIT;

const WatchedMapping* find_mapping(const std::byte* address) {
  for (const WatchedMapping* node = first_mapping.load(std::memory_order_acquire); node != nullptr; node = node->next) {
    const std::byte* const begin = node->begin.load(std::memory_order_acquire);
    if (begin != nullptr && address >= begin && address < begin + node->bytes) return node;
  }
  return nullptr;
}

// Calls only async-signal-safe functions.
void on_bus_error(int signal, siginfo_t* info, void*) {
  const bool fault = info->si_code > 0;  // otherwise a process sent it, and there is no address
  const WatchedMapping* const mapping = fault ? find_mapping(static_cast<const std::byte*>(info->si_addr)) : nullptr;
  if (mapping == nullptr) {
    ::sigaction(signal, &previous_action, nullptr);
    if (!fault) ::raise(signal);
    return;  // a fault occurs again, and the previous handler gets it
  }
  if (ending.test_and_set()) {
    while (true) ::pause();  // another thread is writing the message
  }
  const std::string& sentence = mapping->sentence;
  for (size_t done = 0; done < sentence.size();) {
    const ssize_t count = ::write(STDERR_FILENO, sentence.data() + done, sentence.size() - done);
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  ::_exit(static_cast<int>(ExitCode::io));
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGBUS, &action, &previous_action);
}

}  // namespace

WatchedMapping* watch_mapping(const std::byte* begin, int64_t bytes, const std::string& path) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  static std::mutex mutex;  // one thread at a time changes the list
  const std::lock_guard lock(mutex);
  WatchedMapping* node = first_mapping.load(std::memory_order_relaxed);
  while (node != nullptr && node->begin.load(std::memory_order_relaxed) != nullptr) node = node->next;
  const bool fresh = node == nullptr;
  if (fresh) node = new WatchedMapping;  // never freed: the handler may be reading it
  node->bytes = bytes;
  node->sentence = fmt::format(
      "megatrain: cannot read {}: the file was truncated while in use, or its disk reported an error; restore the file "
      "or check the disk, and start again.\n",
      escape_line(path));
  node->begin.store(begin, std::memory_order_release);
  if (fresh) {
    node->next = first_mapping.load(std::memory_order_relaxed);
    first_mapping.store(node, std::memory_order_release);
  }
  return node;
}

void forget_mapping(WatchedMapping* mapping) noexcept {
  if (mapping != nullptr) mapping->begin.store(nullptr, std::memory_order_release);
}

}  // namespace megatrain
