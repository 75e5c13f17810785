#include "megatrain/ops/cuda/linear.h"

#include <algorithm>
#include <string>
#include <utility>

#include "megatrain/base/error.h"
#include "megatrain/device/cuda/check.h"
#include "megatrain/ops/cuda/kernels.h"

namespace megatrain {

namespace {

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
using MatmulDescription = Described<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Described<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Described<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    default:
      fail_internal(std::string("a CUDA matrix product was given ") + dtype_name(dtype) + "; it takes fp32 or bf16");
  }
}

// A stored (rows, cols) row-major matrix is a (cols, rows) column-major one.
void describe(MatrixLayout& layout, const View& view) {
  CUDA_CHECK(cublasLtMatrixLayoutCreate(layout.out(), cuda_type(view.dtype), static_cast<uint64_t>(view.cols),
                                        static_cast<uint64_t>(view.rows), std::max(view.row_stride, view.cols)));
}

// Bytes every row of the view is aligned to, up to 16.
uint32_t alignment_of(const View& view) {
  const uint64_t bits =
      reinterpret_cast<uintptr_t>(view.data) | static_cast<uint64_t>(view.row_stride * dtype_bytes(view.dtype)) | 16u;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

template <class Value>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  CUDA_CHECK(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof(value)));
}

template <class Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  CUDA_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
}

}  // namespace

CudaLinear::CudaLinear(Scratch& scratch) : scratch_(scratch) { CUDA_CHECK(cublasLtCreate(&handle_)); }
CudaLinear::~CudaLinear() { cublasLtDestroy(handle_); }

// cuBLAS is column-major, so it computes the transpose: out^T (n, m) = right^T left^T. A row-major matrix read as
// column-major is already its transpose: A = right, transposed when right is stored as (n, k); B = left likewise.
bool CudaLinear::multiply_by_cublas(const Product& product, cudaStream_t stream) {
  const View &a = product.right, &b = product.left;
  const cublasOperation_t op_a = product.right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_b = product.left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const bool has_bias = !product.bias.empty();
  const View& c = product.residual.empty() ? product.out : product.residual;

  MatmulDescription description;
  CUDA_CHECK(cublasLtMatmulDescCreate(description.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, op_a);
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, op_b);
  if (has_bias) {
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(product.bias.data));
    set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(product.bias.dtype));
  }
  MatrixLayout layout_a, layout_b, layout_c, layout_d;
  describe(layout_a, a);
  describe(layout_b, b);
  describe(layout_c, c);
  describe(layout_d, product.out);

  const Key key{product.m,
                product.n,
                product.k,
                static_cast<int64_t>(a.dtype),
                static_cast<int64_t>(product.out.dtype),
                op_a,
                op_b,
                has_bias,
                a.row_stride,
                b.row_stride,
                c.row_stride,
                product.out.row_stride,
                alignment_of(a) | alignment_of(b) << 8,
                alignment_of(c) | alignment_of(product.out) << 8};
  auto found = algorithms_.find(key);
  if (found == algorithms_.end()) {
    Preference preference;
    CUDA_CHECK(cublasLtMatmulPreferenceCreate(preference.out()));
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(a));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(b));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(c));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product.out));
    cublasLtMatmulHeuristicResult_t result{};
    int results = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, description, layout_a, layout_b, layout_c,
                                                                 layout_d, preference, 1, &result, &results);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE) CUDA_CHECK(status);
    const bool usable = status == CUBLAS_STATUS_SUCCESS && results > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    std::optional<cublasLtMatmulAlgo_t> algorithm;
    if (usable) algorithm = result.algo;
    found = algorithms_.emplace(key, algorithm).first;
  }
  if (!found->second) return false;

  const float alpha = 1.0f, beta = product.residual.empty() ? 0.0f : 1.0f;
  CUDA_CHECK(cublasLtMatmul(handle_, description, &alpha, a.data, layout_a, b.data, layout_b, &beta, c.data, layout_c,
                            product.out.data, layout_d, &*found->second, scratch_.take(kWorkspaceBytes, stream),
                            static_cast<size_t>(kWorkspaceBytes), stream));
  return true;
}

void CudaLinear::multiply(const Product& product, cudaStream_t stream) {
  if (product.m == 0 || product.n == 0) return;
  ensure(product.left.dtype == product.right.dtype, "the operands of a product share a dtype");
  if (multiply_by_cublas(product, stream)) return;
  const View &left = product.left, &right = product.right;
  launch(SimpleGemm{.m = product.m,
                    .n = product.n,
                    .k = product.k,
                    .a = left.data,
                    .a_row = product.left_transposed ? 1 : left.row_stride,
                    .a_column = product.left_transposed ? left.row_stride : 1,
                    .b = right.data,
                    .b_row = product.right_transposed ? 1 : right.row_stride,
                    .b_column = product.right_transposed ? right.row_stride : 1,
                    .in = left.dtype,
                    .bias = product.bias.data,
                    .residual = product.residual.data,
                    .residual_row = product.residual.row_stride,
                    .c = product.out.data,
                    .c_row = product.out.row_stride,
                    .out = product.out.dtype},
         stream);
}

void CudaLinear::forward(const LinearForward& args, cudaStream_t stream) {
  ensure(args.x.cols == args.weight.cols && args.out.rows == args.x.rows && args.out.cols == args.weight.rows,
         "a linear layer maps (T, K) to (T, N) with a weight (N, K)");
  ensure(args.bias.empty() || (args.bias.cols == args.weight.rows && args.bias.dtype == args.weight.dtype),
         "a bias is (N), of the weight's dtype");
  // cuBLASLt adds a bias of the output's dtype; an fp32 output of bf16 operands gets it in a pass of its own,
  // unrounded.
  const bool fused = args.bias.empty() || args.bias.dtype == args.out.dtype;
  multiply({.m = args.x.rows,
            .n = args.weight.rows,
            .k = args.x.cols,
            .left = args.x,
            .left_transposed = false,
            .right = args.weight,
            .right_transposed = true,
            .bias = fused ? args.bias : View{},
            .residual = args.residual,
            .out = args.out},
           stream);
  if (!fused) launch_add_bias(args.out, args.bias, stream);
}

void CudaLinear::backward_input(const LinearBackwardInput& args, cudaStream_t stream) {
  ensure(args.grad_out.cols == args.weight.rows && args.grad_x.cols == args.weight.cols &&
             args.grad_x.rows == args.grad_out.rows,
         "a linear layer's input gradient is (T, N) times (N, K)");
  multiply({.m = args.grad_out.rows,
            .n = args.weight.cols,
            .k = args.weight.rows,
            .left = args.grad_out,
            .left_transposed = false,
            .right = args.weight,
            .right_transposed = false,
            .bias = {},
            .residual = args.accumulate ? args.grad_x : View{},
            .out = args.grad_x},
           stream);
}

void CudaLinear::backward_weight(const LinearBackwardWeight& args, cudaStream_t stream) {
  const int64_t tokens = args.grad_out.rows;
  ensure(args.x.rows == tokens && args.grad_weight.rows == args.grad_out.cols && args.grad_weight.cols == args.x.cols,
         "a linear layer's weight gradient is (N, T) times (T, K)");
  ensure(args.grad_weight.dtype == DType::f32, "weight gradients are fp32");
  ensure(tokens > 0, "a weight gradient sums over at least one token");
  multiply({.m = args.grad_out.cols,
            .n = args.x.cols,
            .k = tokens,
            .left = args.grad_out,
            .left_transposed = true,
            .right = args.x,
            .right_transposed = false,
            .bias = {},
            .residual = args.accumulate ? args.grad_weight : View{},
            .out = args.grad_weight},
           stream);
  if (args.grad_bias.empty()) return;
  void* partials = scratch_.take(column_sum_scratch_bytes(tokens, args.grad_out.cols), stream);
  launch_column_sum(args.grad_out, args.grad_bias.as<float>(), args.accumulate, partials, stream);
}

}  // namespace megatrain
