#include "megatrain/ops/cuda/experts_hopper.cuh"

namespace megatrain {

namespace {

using Sum = cutlass::epilogue::fusion::LinearCombination<HopperElement, float, HopperElement, float>;

// a: (rows, k)   to: (rows, n)
//   LayoutB is column-major   to (+)= scale a W^T   W: (n, k)
//   LayoutB is row-major      to (+)= scale a W     W: (k, n)
template <class LayoutB, class Args>
void run_sum(const Args& args, int64_t n, int64_t k, const View& a, const View& to, const char* what, void* scratch,
             int processors, cudaStream_t stream) {
  using Gemm = HopperGemm<cutlass::layout::RowMajor, LayoutB, HopperElement, HopperElement, Sum>;
  const auto groups = write_groups<Gemm, HopperElement, 0>(
      scratch, args.rows, 0, n, k, operand_of(a), operand_of(args.weight), HopperOperand{}, operand_of(to), stream);
  typename Gemm::Gemm::Arguments gemm{};
  gemm.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  gemm.problem_shape = {static_cast<int>(args.rows.experts), groups.problems, nullptr};
  gemm.mainloop = {groups.a, groups.stride_a, groups.b, groups.stride_b};
  gemm.epilogue.thread.alpha = args.scale;
  gemm.epilogue.thread.beta = args.accumulate ? 1.0f : 0.0f;  // C is read only if beta is not 0
  gemm.epilogue.ptr_C = const_cast<const HopperElement**>(groups.d);
  gemm.epilogue.dC = groups.stride_d;
  gemm.epilogue.ptr_D = groups.d;
  gemm.epilogue.dD = groups.stride_d;
  gemm.hw_info.sm_count = processors;
  run_hopper<Gemm>(gemm, groups.workspace, what, stream);
}

}  // namespace

void launch_hopper_sum(const ExpertsForward& args, void* scratch, int processors, cudaStream_t stream) {
  ensure(args.bias.empty(), "a scaled or added product of experts has no bias");
  const View& weight = args.weight.first;
  run_sum<cutlass::layout::ColumnMajor>(args, weight.rows, weight.cols, args.x, args.out,
                                        "an addition to the experts' forward GEMM", scratch, processors, stream);
}

void launch_hopper_sum(const ExpertsBackwardInput& args, void* scratch, int processors, cudaStream_t stream) {
  const View& weight = args.weight.first;
  run_sum<cutlass::layout::RowMajor>(args, weight.cols, weight.rows, args.grad_out, args.grad_x,
                                     "an addition to the experts' input gradient", scratch, processors, stream);
}

}  // namespace megatrain
