// The CPU as a device. Its "device memory" is ordinary memory, but separate from the host store, so that the engine
// moves every byte that it would move on a GPU.
#include <unistd.h>

#include <cstring>
#include <thread>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/device/cpu/host_stream.h"
#include "megatrain/device/device.h"
#include "megatrain/host/arena.h"

namespace megatrain {

namespace {

class CpuDevice : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override { return "CPU"; }

  // Filled with NaNs. On a GPU the contents are undefined, so this exposes reads of memory that no action wrote.
  Buffer allocate(size_t bytes, const std::string& tag) override {
    Buffer buffer = map(bytes, tag, ledger_);
    if (bytes > 0) std::memset(buffer.data(), 0xFF, bytes);
    return buffer;
  }
  Buffer allocate_host(size_t bytes, const std::string& tag) override { return map(bytes, tag, host_ledger_); }

  void copy_now(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void zero_now(void* to, size_t bytes) override {
    if (bytes > 0) std::memset(to, 0, bytes);
  }

  std::unique_ptr<Stream> make_stream(const std::string& name) override { return make_worker_stream(name); }
  std::unique_ptr<HostStream> make_host_stream(const std::string& name) override { return make_worker_stream(name); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<HostEvent>(); }
  std::unique_ptr<Event> make_host_event() override { return std::make_unique<HostEvent>(); }

  double reached_s(const Event& event) const override {
    return static_cast<double>(dynamic_cast<const HostEvent&>(event).reached_ns()) * 1e-9;
  }
  void mark_clock() override {}

  double elapsed_s(const Event& from, const Event& to) const override {
    return static_cast<double>(dynamic_cast<const HostEvent&>(to).reached_ns() -
                               dynamic_cast<const HostEvent&>(from).reached_ns()) *
           1e-9;
  }

  int64_t memory_total() const override { return pages(_SC_PHYS_PAGES); }
  int64_t memory_free() const override { return pages(_SC_AVPHYS_PAGES); }
  int64_t memory_used() const override { return ledger_.bytes(); }

 private:
  static int64_t pages(int which) { return static_cast<int64_t>(sysconf(which)) * sysconf(_SC_PAGESIZE); }

  static Buffer map(size_t bytes, const std::string& tag, Ledger& ledger) {
    void* data = map_huge_pages(bytes, static_cast<int>(std::thread::hardware_concurrency()));
    if (!data && bytes > 0) {
      fail(ExitCode::cannot_fit, "could not map " + format_bytes(static_cast<int64_t>(bytes)) + " of host memory for " +
                                     tag +
                                     ": the machine or a limit (ulimit -v) gives no more; lower memory.gpu or "
                                     "memory.host. Held so far:\n" +
                                     ledger.table());
    }
    ledger.add(tag, static_cast<int64_t>(bytes));
    return {data, bytes, [tag, &ledger](void* p, size_t n) {
              unmap_huge_pages(p, n);
              ledger.remove(tag, static_cast<int64_t>(n));
            }};
  }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace megatrain
