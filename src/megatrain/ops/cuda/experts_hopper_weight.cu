#include "megatrain/ops/cuda/experts_hopper.cuh"

namespace megatrain {

namespace {

// grad_weight (N, K) = scale grad_out^T (N, rows) x (rows, K): the sum is over the expert's rows.
using Weight = HopperGemm<cutlass::layout::ColumnMajor, cutlass::layout::RowMajor, float, float,
                          cutlass::epilogue::fusion::LinearCombination<float, float, float, float>>;

}  // namespace

void launch_hopper(const ExpertsBackwardWeight& args, void* scratch, int processors, cudaStream_t stream) {
  const View& grad = args.grad_weight.first;
  const auto groups =
      write_groups<Weight, float, 2>(scratch, args.rows, grad.rows, grad.cols, 0, operand_of(args.grad_out),
                                     operand_of(args.x), HopperOperand{}, operand_of(args.grad_weight), stream);
  typename Weight::Gemm::Arguments gemm{};
  gemm.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  gemm.problem_shape = {static_cast<int>(args.rows.experts), groups.problems, nullptr};
  gemm.mainloop = {groups.a, groups.stride_a, groups.b, groups.stride_b};
  gemm.epilogue.thread.alpha = args.scale;
  gemm.epilogue.thread.beta = args.accumulate ? 1.0f : 0.0f;  // C is read only if beta is not 0
  gemm.epilogue.ptr_C = const_cast<const float**>(groups.d);
  gemm.epilogue.dC = groups.stride_d;
  gemm.epilogue.ptr_D = groups.d;
  gemm.epilogue.dD = groups.stride_d;
  gemm.hw_info.sm_count = processors;
  run_hopper<Weight>(gemm, groups.workspace, "the experts' weight gradient", stream);
}

}  // namespace megatrain
