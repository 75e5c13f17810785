#include "tests/ops/heads_check.h"

namespace megatrain::testing {
namespace {

TEST(CpuOps, HeadsAreCopiedSharedSummedAndPadded) {
  const auto device = make_cpu_device();
  const auto ops = make_cpu_ops({.threads = 2});
  const auto stream = device->make_stream("test");
  for (const HeadsCase& c : heads_cases()) expect_heads_moved(*device, *ops, *stream, c);
}

}  // namespace
}  // namespace megatrain::testing
