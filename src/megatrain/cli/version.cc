#include <fmt/format.h>

#include "megatrain/base/version.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/device/device.h"
#include "megatrain/ops/ops.h"

namespace megatrain {

std::string version_text() {
  const std::string libraries = cuda_libraries();
  std::string why;
  const std::unique_ptr<Device> gpu = make_cuda_device(&why);
  return fmt::format("megatrain {}\ncommit {}\nlibraries {}\nGPU {}\n", kVersion, kBuildCommit,
                     libraries.empty() ? "none: built without CUDA" : libraries, gpu ? gpu->name() : "none: " + why);
}

}  // namespace megatrain
