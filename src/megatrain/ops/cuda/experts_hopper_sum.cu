#include "megatrain/ops/cuda/experts_hopper.cuh"

namespace megatrain {

namespace {

using Sum = cutlass::epilogue::fusion::LinearCombination<HopperElement, float, HopperElement, float>;

// to (+)= scale a b
template <class Gemm>
void run_sum(const HopperGroups<Gemm, HopperElement>& groups, int64_t experts, float scale, bool accumulate,
             const char* what, int processors, cudaStream_t stream) {
  typename Gemm::Gemm::Arguments gemm{};
  gemm.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  gemm.problem_shape = {static_cast<int>(experts), groups.problems, nullptr};
  gemm.mainloop = {groups.a, groups.stride_a, groups.b, groups.stride_b};
  gemm.epilogue.thread.alpha = scale;
  gemm.epilogue.thread.beta = accumulate ? 1.0f : 0.0f;  // C is read only if beta is not 0
  gemm.epilogue.ptr_C = const_cast<const HopperElement**>(groups.d);
  gemm.epilogue.dC = groups.stride_d;
  gemm.epilogue.ptr_D = groups.d;
  gemm.epilogue.dD = groups.stride_d;
  gemm.hw_info.sm_count = processors;
  run_hopper<Gemm>(gemm, groups.workspace, what, stream);
}

}  // namespace

void launch_hopper_sum(const ExpertsForward& args, void* scratch, int processors, cudaStream_t stream) {
  using Gemm = HopperGemm<cutlass::layout::RowMajor, cutlass::layout::ColumnMajor, HopperElement, HopperElement, Sum>;
  ensure(args.bias.empty(), "a scaled or added product of experts has no bias");
  const View& weight = args.weight.first;
  const auto groups =
      write_groups<Gemm, HopperElement, 0>(scratch, args.rows, 0, weight.rows, weight.cols, operand_of(args.x),
                                           operand_of(args.weight), HopperOperand{}, operand_of(args.out), stream);
  run_sum<Gemm>(groups, args.rows.experts, args.scale, args.accumulate, "an addition to the experts' forward GEMM",
                processors, stream);
}

void launch_hopper_sum(const ExpertsBackwardInput& args, void* scratch, int processors, cudaStream_t stream) {
  using Gemm = HopperGemm<cutlass::layout::RowMajor, cutlass::layout::RowMajor, HopperElement, HopperElement, Sum>;
  const View& weight = args.weight.first;
  const auto groups =
      write_groups<Gemm, HopperElement, 0>(scratch, args.rows, 0, weight.cols, weight.rows, operand_of(args.grad_out),
                                           operand_of(args.weight), HopperOperand{}, operand_of(args.grad_x), stream);
  run_sum<Gemm>(groups, args.rows.experts, args.scale, args.accumulate, "an addition to the experts' input gradient",
                processors, stream);
}

}  // namespace megatrain
