#include "megatrain/device/cuda/scratch.h"

#include "megatrain/device/cuda/check.h"

namespace megatrain {

void Scratch::reserve(int64_t bytes) {
  if (static_cast<int64_t>(buffer_.bytes()) >= bytes) return;
  buffer_ = Buffer();  // freed first, so that both never exist at once
  buffer_ = device_.allocate(static_cast<size_t>(bytes), "ops scratch");
}

std::byte* Scratch::take(int64_t bytes, cudaStream_t stream) {
  if (static_cast<int64_t>(buffer_.bytes()) < bytes) {
    CUDA_CHECK(cudaStreamSynchronize(stream));
    reserve(bytes);
  }
  return buffer_.data();
}

}  // namespace megatrain
