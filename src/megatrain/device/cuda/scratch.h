// The one buffer of device memory that all ops of the compute stream use in turn.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "megatrain/device/device.h"

namespace megatrain {

class Scratch {
 public:
  explicit Scratch(Device& device) : device_(device) {}

  // No op may be running.
  void reserve(int64_t bytes);

  // At least `bytes`, owned by the caller until the next op is enqueued. Grows only for a shape that reserve() did not
  // cover.
  std::byte* take(int64_t bytes, cudaStream_t stream);

 private:
  Device& device_;
  Buffer buffer_;
};

}  // namespace megatrain
