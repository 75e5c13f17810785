// The CUDA device with its ops, one stream and a harness.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "tests/ops/harness.h"

namespace megatrain::testing {

inline std::unique_ptr<Device> require_cuda_device() {
  std::string why;
  std::unique_ptr<Device> device = make_cuda_device(&why);
  if (!device) throw std::runtime_error("these tests need a GPU: " + why);
  return device;
}

struct CudaFixture {
  CudaFixture()
      : device(require_cuda_device()),
        ops(make_cuda_ops(*device)),
        stream(device->make_stream("compute")),
        harness(*device, *ops, *stream) {}

  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Stream> stream;
  Harness harness;
};

}  // namespace megatrain::testing
