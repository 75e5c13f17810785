#include "tests/ops/scale_check.h"

#include "tests/ops/cpu_fixture.h"

namespace megatrain::testing {
namespace {

TEST(CpuOps, LearnedFactorsMultiplyAndHaveTheirGradients) {
  CpuFixture cpu({.threads = 2});
  check_scales(cpu.harness);
}

}  // namespace
}  // namespace megatrain::testing
