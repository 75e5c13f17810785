#include "megatrain/ops/cuda/experts_hopper.cuh"

namespace megatrain {

namespace {

// grad_x (rows, K) = grad_out (rows, N) weight (N, K): the sum is over N.
namespace fusion = cutlass::epilogue::fusion;
using Rounded = fusion::Sm90EVT<fusion::Sm90Compute<cutlass::epilogue::thread::Identity, HopperElement, float,
                                                    cutlass::FloatRoundStyle::round_to_nearest>,
                                fusion::Sm90AccFetch>;
using Input = HopperGemm<cutlass::layout::RowMajor, cutlass::layout::RowMajor, void, HopperElement, Rounded>;

}  // namespace

void launch_hopper(const ExpertsBackwardInput& args, void* scratch, int processors, cudaStream_t stream) {
  if (args.accumulate || args.scale != 1) return launch_hopper_sum(args, scratch, processors, stream);
  const View& weight = args.weight.first;
  const auto groups =
      write_groups<Input, HopperElement, 0>(scratch, args.rows, 0, weight.cols, weight.rows, operand_of(args.grad_out),
                                            operand_of(args.weight), HopperOperand{}, operand_of(args.grad_x), stream);
  typename Input::Gemm::Arguments gemm{};
  gemm.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  gemm.problem_shape = {static_cast<int>(args.rows.experts), groups.problems, nullptr};
  gemm.mainloop = {groups.a, groups.stride_a, groups.b, groups.stride_b};
  gemm.epilogue.ptr_D = groups.d;
  gemm.epilogue.dD = groups.stride_d;
  gemm.hw_info.sm_count = processors;
  run_hopper<Input>(gemm, groups.workspace, "the experts' input gradient", stream);
}

}  // namespace megatrain
