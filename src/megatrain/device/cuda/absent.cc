// Replaces the CUDA device in a build without CUDA.
#include "megatrain/device/device.h"

namespace megatrain {

std::unique_ptr<Device> make_cuda_device(std::string* why) {
  if (why) *why = "this build has no CUDA support";
  return nullptr;
}

}  // namespace megatrain
