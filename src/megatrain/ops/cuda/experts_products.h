// The products of mixtures of experts: on Hopper CUTLASS's kernels for what they take (experts_hopper.h), tiles of our
// own for the rest (experts_product.cu). Which of the two follows from the GPU and the shapes alone.
#pragma once

#include <cuda_runtime_api.h>

#include "megatrain/ops/cuda/scratch.h"
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
