// Replaces the CUDA ops in a build without CUDA.
#include "megatrain/base/error.h"
#include "megatrain/ops/ops.h"

namespace megatrain {

std::unique_ptr<Ops> make_cuda_ops(Device&) { fail_internal("this build has no CUDA support, so it has no CUDA ops"); }

std::string cuda_libraries() { return ""; }

}  // namespace megatrain
