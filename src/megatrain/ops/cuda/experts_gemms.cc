#include "megatrain/ops/cuda/experts_gemms.h"

#include "megatrain/base/error.h"
#include "megatrain/device/cuda/check.h"
#include "megatrain/ops/cuda/experts_hopper.h"
#include "megatrain/ops/cuda/kernels.h"

namespace megatrain {

namespace {

int attribute(cudaDeviceAttr name) {
  int device = 0, value = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&value, name, device));
  return value;
}

}  // namespace

CudaExperts::CudaExperts(Scratch& scratch)
    : scratch_(scratch),
      hopper_(attribute(cudaDevAttrComputeCapabilityMajor) == 9 && attribute(cudaDevAttrComputeCapabilityMinor) == 0),
      processors_(attribute(cudaDevAttrMultiProcessorCount)) {}

void CudaExperts::forward(const ExpertsForward& args, cudaStream_t stream) {
  const View& weight = args.weight.first;
  ensure(args.x.cols == weight.cols && args.out.cols == weight.rows, "an expert maps (rows, K) to (rows, N)");
  ensure(weight.dtype == args.x.dtype && args.out.dtype == args.x.dtype &&
             (args.bias.empty() || args.bias.first.dtype == args.x.dtype),
         "an expert's tensors share a dtype");
  if (hopper_ && hopper_takes(args)) {
    void* scratch = scratch_.take(hopper_scratch_bytes(args.rows.experts, processors_), stream);
    return launch_hopper(args, scratch, processors_, stream);
  }
  launch(args, stream);
}

void CudaExperts::backward_input(const ExpertsBackwardInput& args, cudaStream_t stream) {
  const View& weight = args.weight.first;
  ensure(args.grad_out.cols == weight.rows && args.grad_x.cols == weight.cols,
         "an expert's input gradient is (rows, N) times (N, K)");
  ensure(weight.dtype == args.grad_out.dtype && args.grad_x.dtype == args.grad_out.dtype,
         "an expert's tensors share a dtype");
  if (hopper_ && hopper_takes(args)) {
    void* scratch = scratch_.take(hopper_scratch_bytes(args.rows.experts, processors_), stream);
    return launch_hopper(args, scratch, processors_, stream);
  }
  launch(args, stream);
}

void CudaExperts::backward_weight(const ExpertsBackwardWeight& args, cudaStream_t stream) {
  if (!args.grad_weight.empty()) {
    const View& grad = args.grad_weight.first;
    ensure(grad.rows == args.grad_out.cols && grad.cols == args.x.cols,
           "an expert's weight gradient is (N, rows) times (rows, K)");
    ensure(grad.dtype == DType::f32 && args.x.dtype == args.grad_out.dtype, "weight gradients are fp32");
    if (hopper_ && hopper_takes(args)) {
      void* scratch = scratch_.take(hopper_scratch_bytes(args.rows.experts, processors_), stream);
      launch_hopper(args, scratch, processors_, stream);
      if (!args.accumulate) launch_zero_unused(args, stream);
    } else {
      launch(args, stream);
    }
  }
  if (args.grad_bias.empty()) return;
  ensure(args.grad_bias.first.dtype == DType::f32 && args.grad_bias.first.cols == args.grad_out.cols,
         "an expert's bias gradient is (N) fp32");
  launch_experts_bias(args, stream);
}

}  // namespace megatrain
