// CUDA's streams and events behind the device seam.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "megatrain/device/cpu/host_stream.h"
#include "megatrain/device/device.h"

namespace megatrain {

// Records times; a thread that waits for it sleeps instead of spinning.
class CudaEvent final : public Event {
 public:
  CudaEvent();
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void block() override;
  bool reached() const override;
  cudaEvent_t native() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// 32-bit flags in pinned host memory that the GPU can access, each on its own cache line.
class FlagPool {
 public:
  struct Flag {
    std::atomic<uint32_t>* host = nullptr;
    uint64_t device = 0;  // the GPU's address of the same word
  };
  FlagPool() = default;
  ~FlagPool();
  FlagPool(const FlagPool&) = delete;
  FlagPool& operator=(const FlagPool&) = delete;

  Flag take();           // initially 0
  void give_back(Flag);  // no stream may be waiting for it

 private:
  static constexpr size_t kPageBytes = 65536;
  static constexpr size_t kFlagBytes = 64;

  std::mutex mutex_;
  std::vector<void*> pages_;
  std::vector<Flag> free_;
};

// A host event whose flag a CUDA stream can wait for.
class CudaHostEvent final : public HostEvent {
 public:
  CudaHostEvent(FlagPool& pool, FlagPool::Flag flag) : HostEvent(flag.host), pool_(pool), flag_(flag) {}
  ~CudaHostEvent() override { pool_.give_back(flag_); }

  uint64_t device_flag() const { return flag_.device; }

 private:
  FlagPool& pool_;
  FlagPool::Flag flag_;
};

class CudaStream final : public Stream {
 public:
  CudaStream();
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void copy(void* to, const void* from, size_t bytes) override;
  void zero(void* to, size_t bytes) override;
  void record(Event& event) override;
  void wait(Event& event) override;  // of a CUDA stream, or of a host stream of the same device
  void synchronize() override;
  void check() override;
  cudaStream_t native() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// The CUDA stream behind a stream of a CUDA device.
cudaStream_t native_stream(Stream& stream);

}  // namespace megatrain
