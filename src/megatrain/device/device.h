// The device seam: which hardware (Device), where memory is (Buffer), what runs (Stream) and when it is done (Event).
// cpu/ and cuda/ implement it, and nothing above this floor sees CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "megatrain/device/ledger.h"

namespace megatrain {

enum class DeviceKind : uint8_t { cpu, cuda };

// A point in a stream: recorded by one stream, waited for by others or by the host. It may be recorded again once no
// stream waits for the earlier point.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks the calling thread until the last recorded point has been reached.
  virtual void block() = 0;
  // Whether the last recorded point was reached; true before the first record. Safe from any thread, even while it is
  // recorded again.
  virtual bool reached() const = 0;
};

// An in-order queue of work. Calls enqueue and return; errors are thrown by the call or by synchronize().
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  virtual void zero(void* to, size_t bytes) = 0;
  virtual void record(Event& event) = 0;
  virtual void wait(Event& event) = 0;
  virtual void synchronize() = 0;
  // Throws the first error so far, without waiting.
  virtual void check() = 0;
};

// A stream whose work is host code on one worker thread. Every stream of the CPU device is one; the update lane is one
// on any device. An exception from work is stored, later work is skipped, and synchronize() throws it.
class HostStream : public Stream {
 public:
  virtual void run(std::function<void()> work) = 0;
};

// Move-only owner of device or host memory, counted in its device's ledger under a tag.
class Buffer {
 public:
  using Free = std::function<void(void*, size_t)>;
  Buffer() = default;
  Buffer(void* data, size_t bytes, Free free) : data_(data), bytes_(bytes), free_(std::move(free)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() {
    if (data_) free_(data_, bytes_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Free free_;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;

  // Memory that the device computes on. Contents are undefined. Throws Error(cannot_fit) with the ledger if there is
  // not enough.
  virtual Buffer allocate(size_t bytes, const std::string& tag) = 0;
  // Host memory that copies at full link speed: huge pages, zeroed by all cores, registered with the device.
  virtual Buffer allocate_host(size_t bytes, const std::string& tag) = 0;

  // Synchronous copies between any of the device's and the host's memory; not optimised for speed. Safe from any
  // thread; the caller must ensure that no stream touches the bytes.
  virtual void copy_now(void* to, const void* from, size_t bytes) = 0;
  virtual void zero_now(void* to, size_t bytes) = 0;

  virtual std::unique_ptr<Stream> make_stream(const std::string& name) = 0;
  virtual std::unique_ptr<HostStream> make_host_stream(const std::string& name) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;       // for streams of make_stream
  virtual std::unique_ptr<Event> make_host_event() = 0;  // for streams of make_host_stream

  // When the event was reached, on the host's clock (base/clock.h); it must have been. Device events are placed
  // relative to a mark, which mark_clock() sets while the device is idle. Call that first, and repeat it now and then.
  virtual double reached_s(const Event& event) const = 0;
  virtual void mark_clock() = 0;

  // Seconds from `from` to `to`. Both must have been reached, on streams of the same kind.
  virtual double elapsed_s(const Event& from, const Event& to) const = 0;

  virtual int64_t memory_total() const = 0;  // bytes of the device
  virtual int64_t memory_free() const = 0;   // bytes that can still be allocated
  virtual int64_t memory_used() const = 0;   // by this process according to the driver, context included

  const Ledger& ledger() const { return ledger_; }  // device memory
  const Ledger& host_ledger() const { return host_ledger_; }

 protected:
  Ledger ledger_;
  Ledger host_ledger_;
};

std::unique_ptr<Device> make_cpu_device();

// nullptr if this build has no CUDA or the machine no usable GPU; `why` then says so in a sentence.
std::unique_ptr<Device> make_cuda_device(std::string* why);

}  // namespace megatrain
