// Matmuls through cuBLASLt, except forward ones of a few rows (few_rows.cu). The algorithm for a shape is chosen once
// and kept, so equal calls give equal bits. It is the fastest if the shape was tuned, otherwise the library's first
// proposal. None splits the sum over k.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "megatrain/ops/cuda/matmul.h"
#include "megatrain/device/cuda/scratch.h"
#include "megatrain/ops/linear.h"
#include "megatrain/ops/ops.h"

namespace megatrain {

class CudaLinear {
 public:
  static constexpr int64_t kWorkspaceBytes = Matmul::kWorkspaceBytes;

  explicit CudaLinear(Scratch& scratch);
  ~CudaLinear();
  CudaLinear(const CudaLinear&) = delete;
  CudaLinear& operator=(const CudaLinear&) = delete;

  void forward(const LinearForward& args, cudaStream_t stream);
  void backward_input(const LinearBackwardInput& args, cudaStream_t stream);
  void backward_weight(const LinearBackwardWeight& args, cudaStream_t stream);

  // See Ops::tune.
  AlgorithmTable tune(Device& device, const std::vector<OpNote>& notes, const AlgorithmTable& known);

 private:
  using Choice = std::optional<cublasLtMatmulAlgo_t>;  // none: cuBLASLt has no algorithm for the matmul

  void multiply(const Gemm& gemm, cudaStream_t stream);

  Scratch& scratch_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<GemmKey, Choice> algorithms_;
};

}  // namespace megatrain
