// Matrix products through cuBLASLt. The algorithm of a shape is the first the library proposes that adds in one order
// (no split over k), chosen once and kept, so equal calls give equal bits.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include "megatrain/ops/cuda/scratch.h"
#include "megatrain/ops/linear.h"

namespace megatrain {

class CudaLinear {
 public:
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  explicit CudaLinear(Scratch& scratch);
  ~CudaLinear();
  CudaLinear(const CudaLinear&) = delete;
  CudaLinear& operator=(const CudaLinear&) = delete;

  void forward(const LinearForward& args, cudaStream_t stream);
  void backward_input(const LinearBackwardInput& args, cudaStream_t stream);
  void backward_weight(const LinearBackwardWeight& args, cudaStream_t stream);

 private:
  // Row-major c (m, n) = left right + bias + residual, where left is (m, k) and right is (k, n), each as stored or
  // transposed.
  struct Product {
    int64_t m, n, k;
    View left;
    bool left_transposed;  // left is stored as (k, m)
    View right;
    bool right_transposed;  // right is stored as (n, k)
    View bias;              // (n) or empty, dtype of the operands
    View residual;          // as out, or empty; may be out itself
    View out;
  };
  using Key = std::array<int64_t, 14>;

  void multiply(const Product& product, cudaStream_t stream);
  // False: cuBLASLt has no algorithm for the product.
  bool multiply_by_cublas(const Product& product, cudaStream_t stream);

  Scratch& scratch_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> algorithms_;
};

}  // namespace megatrain
