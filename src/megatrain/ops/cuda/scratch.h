// The one buffer of device memory that every op of the compute stream uses in turn.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "megatrain/device/device.h"

namespace megatrain {

class Scratch {
 public:
  explicit Scratch(Device& device) : device_(device) {}

  // Nothing of the ops may be running.
  void reserve(int64_t bytes);

  // At least `bytes`, the caller's until the next op is enqueued. Grows only for a shape that reserve() did not
  // foresee.
  std::byte* take(int64_t bytes, cudaStream_t stream);

 private:
  Device& device_;
  Buffer buffer_;
};

}  // namespace megatrain
