#include "tests/ops/columns_check.h"

namespace megatrain::testing {
namespace {

TEST(CpuOps, ColumnsAreMovedAndLeaveZeros) {
  const auto device = make_cpu_device();
  const auto ops = make_cpu_ops({.threads = 2});
  const auto stream = device->make_stream("test");
  for (const ColumnsCase& c : columns_cases()) expect_columns_moved(*device, *ops, *stream, c);
}

}  // namespace
}  // namespace megatrain::testing
