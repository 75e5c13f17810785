// Dropout against its definition: which elements it drops, how often, and what it does with the others.
#include "tests/ops/cpu_fixture.h"
#include "tests/ops/dropout_check.h"

namespace megatrain::testing {

TEST(Dropout, DropsTheElementsThatKeyRowAndColumnNameAndScalesTheOthers) {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream("test");
  const auto ops = make_cpu_ops({.threads = 2});
  for (const DropoutCase& c : dropout_cases()) expect_dropped(*device, *ops, *stream, c);
}

}  // namespace megatrain::testing
