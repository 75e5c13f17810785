#include "tests/ops/cpu_fixture.h"
#include "tests/ops/unpack_check.h"

namespace megatrain::testing {

TEST(Unpack, GivesTheBitsOfTheDecoder) {
  const auto device = make_cpu_device();
  const auto ops = make_cpu_ops({.threads = 2});
  const auto stream = device->make_stream("test");
  for (const UnpackCase& c : unpack_cases()) expect_unpacked(*device, *ops, *stream, c);
}

}  // namespace megatrain::testing
