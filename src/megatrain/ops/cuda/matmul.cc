#include "megatrain/ops/cuda/matmul.h"

#include <algorithm>

#include "megatrain/base/error.h"
#include "megatrain/device/cuda/check.h"

namespace megatrain {

namespace {

using Preference = Described<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    default: fail_internal(std::string("a CUDA matmul was given ") + dtype_name(dtype) + "; it takes fp32 or bf16");
  }
}

// A stored (rows, cols) row-major matrix is a (cols, rows) column-major one.
void describe(cublasLtMatrixLayout_t* layout, const View& view) {
  CUDA_CHECK(cublasLtMatrixLayoutCreate(layout, cuda_type(view.dtype), static_cast<uint64_t>(view.cols),
                                        static_cast<uint64_t>(view.rows), std::max(view.row_stride, view.cols)));
}

// Bytes every row of the view is aligned to, up to 16.
uint32_t alignment_of(const View& view) {
  const uint64_t bits =
      reinterpret_cast<uintptr_t>(view.data) | static_cast<uint64_t>(view.row_stride * dtype_bytes(view.dtype)) | 16u;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

const View& residual_or_out(const Gemm& gemm) { return gemm.residual.empty() ? gemm.out : gemm.residual; }

template <class Value>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  CUDA_CHECK(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof(value)));
}

template <class Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  CUDA_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
}

}  // namespace

GemmKey gemm_key(const Gemm& gemm) {
  const View &a = gemm.right, &b = gemm.left, &c = residual_or_out(gemm);
  return {gemm.m,
          gemm.n,
          gemm.k,
          static_cast<int64_t>(a.dtype),
          static_cast<int64_t>(gemm.out.dtype),
          gemm.right_transposed,
          gemm.left_transposed,
          !gemm.bias.empty(),
          a.row_stride,
          b.row_stride,
          c.row_stride,
          gemm.out.row_stride,
          alignment_of(a) | alignment_of(b) << 8,
          alignment_of(c) | alignment_of(gemm.out) << 8};
}

std::string gemm_text(const GemmKey& key) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const auto type = [](int64_t dtype) { return dtype_name(static_cast<DType>(dtype)); };
  std::string text = number(key[0]) + "x" + number(key[1]) + "x" + number(key[2]) + " " + type(key[3]) + ">" +
                     type(key[4]) + " " + (key[6] ? "t" : "n") + (key[5] ? "t" : "n") + (key[7] ? " bias" : "") +
                     " strides";
  for (size_t i = 8; i < 12; ++i) text += " " + number(key[i]);
  text += " aligned";
  for (size_t i = 12; i < 14; ++i) text += " " + number(key[i] & 0xFF) + " " + number(key[i] >> 8);
  return text;
}

// cuBLAS is column-major, so it computes the transpose: out^T (n, m) = right^T left^T. A row-major matrix read as
// column-major is already its transpose: A = right, transposed when right is stored as (n, k); B = left likewise.
Matmul::Matmul(cublasLtHandle_t handle, const Gemm& gemm)
    : handle_(handle), gemm_(gemm), a_(gemm.right), b_(gemm.left), c_(residual_or_out(gemm)) {
  CUDA_CHECK(cublasLtMatmulDescCreate(description_.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(description_, CUBLASLT_MATMUL_DESC_TRANSA, gemm.right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description_, CUBLASLT_MATMUL_DESC_TRANSB, gemm.left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (!gemm.bias.empty()) {
    set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(gemm.bias.data));
    set(description_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(gemm.bias.dtype));
  }
  describe(layout_a_.out(), a_);
  describe(layout_b_.out(), b_);
  describe(layout_c_.out(), c_);
  describe(layout_d_.out(), gemm.out);
}

std::vector<cublasLtMatmulAlgo_t> Matmul::proposals(int count) const {
  Preference preference;
  CUDA_CHECK(cublasLtMatmulPreferenceCreate(preference.out()));
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(a_));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(b_));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(c_));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(gemm_.out));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, description_, layout_a_, layout_b_, layout_c_,
                                                               layout_d_, preference, count, results.data(), &found);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return algorithms;
  CUDA_CHECK(status);
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms;
}

bool Matmul::accepts(const cublasLtMatmulAlgo_t& algorithm, std::string* why) const {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle_, description_, layout_a_, layout_b_, layout_c_, layout_d_, &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS) {
    *why = cublasLtGetStatusString(status);
    return false;
  }
  if (static_cast<int64_t>(result.workspaceSize) > kWorkspaceBytes) {
    *why = "it needs " + std::to_string(result.workspaceSize) + " bytes of workspace";
    return false;
  }
  return true;
}

void Matmul::run(const cublasLtMatmulAlgo_t& algorithm, void* workspace, cudaStream_t stream) const {
  const float alpha = gemm_.scale, beta = gemm_.residual.empty() ? 0.0f : 1.0f;
  CUDA_CHECK(cublasLtMatmul(handle_, description_, &alpha, a_.data, layout_a_, b_.data, layout_b_, &beta, c_.data,
                            layout_c_, gemm_.out.data, layout_d_, &algorithm, workspace,
                            static_cast<size_t>(kWorkspaceBytes), stream));
}

}  // namespace megatrain
