// The matmuls of mixtures of experts: CUTLASS's kernels on Hopper for what they support (experts_hopper.h), our own
// tiles for the rest (experts_product.cu). The choice depends only on the GPU and the shapes.
#pragma once

#include <cuda_runtime_api.h>

#include "megatrain/device/cuda/scratch.h"
#include "megatrain/ops/experts.h"

namespace megatrain {

class CudaExperts {
 public:
  explicit CudaExperts(Scratch& scratch);

  void forward(const ExpertsForward& args, cudaStream_t stream);
  void backward_input(const ExpertsBackwardInput& args, cudaStream_t stream);
  void backward_weight(const ExpertsBackwardWeight& args, cudaStream_t stream);

 private:
  Scratch& scratch_;
  bool hopper_ = false;
  int processors_ = 0;
};

}  // namespace megatrain
