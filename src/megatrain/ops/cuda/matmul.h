// One matmul as cuBLASLt sees it: its description, the algorithms that the library proposes, and the call.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/tensor/view.h"

namespace megatrain {

// Row-major out (m, n) = scale left right + bias + residual, where left is (m, k) and right is (k, n), each as stored
// or transposed.
struct Gemm {
  int64_t m, n, k;
  View left;
  bool left_transposed;  // left is stored as (k, m)
  View right;
  bool right_transposed;  // right is stored as (n, k)
  View bias;              // (n) or empty, dtype of the operands
  View residual;          // like out, or empty; may alias out
  View out;
  float scale;
};

// What the choice of an algorithm depends on: shapes, dtypes, strides and alignments, but neither addresses nor the
// scale.
using GemmKey = std::array<int64_t, 14>;
GemmKey gemm_key(const Gemm& gemm);

// "8192x4608x3584 bf16>bf16 nt bias strides 3584 3584 4608 4608 aligned 16 16 16 16": m x n x k, operands > out, left
// and right as stored or transposed, then right, left, residual (or out), out.
std::string gemm_text(const GemmKey& key);

// Move-only owner of a cuBLASLt description.
template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
class Described {
 public:
  Described() = default;
  ~Described() {
    if (handle_) kDestroy(handle_);
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;

  Handle* out() { return &handle_; }
  operator Handle() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

class Matmul {
 public:
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  Matmul(cublasLtHandle_t handle, const Gemm& gemm);

  // At most `count` algorithms that add in one order (no split over k), the library's first choice first.
  std::vector<cublasLtMatmulAlgo_t> proposals(int count) const;

  // Whether the library can run the matmul with this algorithm in kWorkspaceBytes; `why` says why not.
  bool accepts(const cublasLtMatmulAlgo_t& algorithm, std::string* why) const;

  void run(const cublasLtMatmulAlgo_t& algorithm, void* workspace, cudaStream_t stream) const;

 private:
  cublasLtHandle_t handle_;
  Gemm gemm_;
  View a_, b_, c_;
  Described<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> description_;
  Described<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> layout_a_, layout_b_, layout_c_, layout_d_;
};

}  // namespace megatrain
