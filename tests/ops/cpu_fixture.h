// The CPU device with its ops, one stream and a harness.
#pragma once

#include <memory>

#include "tests/ops/harness.h"

namespace megatrain::testing {

struct CpuFixture {
  explicit CpuFixture(const CpuOpsOptions& options, int repeat = 1)
      : device(make_cpu_device()),
        ops(make_cpu_ops(options)),
        stream(device->make_stream("compute")),
        harness(*device, *ops, *stream, repeat) {}

  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Stream> stream;
  Harness harness;
};

}  // namespace megatrain::testing
