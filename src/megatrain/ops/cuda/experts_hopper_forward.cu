#include "megatrain/ops/cuda/experts_hopper.cuh"

namespace megatrain {

namespace {

// out = x weight^T + bias, with one bias per column and expert; nothing is added if there is no bias.
namespace fusion = cutlass::epilogue::fusion;
using AddBias = fusion::Sm90EVT<
    fusion::Sm90Compute<cutlass::plus, HopperElement, float, cutlass::FloatRoundStyle::round_to_nearest>,
    fusion::Sm90RowBroadcast<0, HopperTile, HopperElement*, float>, fusion::Sm90AccFetch>;
using Forward = HopperGemm<cutlass::layout::RowMajor, cutlass::layout::ColumnMajor, void, HopperElement, AddBias>;

}  // namespace

void launch_hopper(const ExpertsForward& args, void* scratch, int processors, cudaStream_t stream) {
  if (args.accumulate || args.scale != 1) return launch_hopper_sum(args, scratch, processors, stream);
  const View& weight = args.weight.first;
  const auto groups = write_groups<Forward, HopperElement, 0>(scratch, args.rows, 0, weight.rows, weight.cols,
                                                              operand_of(args.x), operand_of(args.weight),
                                                              operand_of(args.bias), operand_of(args.out), stream);
  typename Forward::Gemm::Arguments gemm{};
  gemm.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  gemm.problem_shape = {static_cast<int>(args.rows.experts), groups.problems, nullptr};
  gemm.mainloop = {groups.a, groups.stride_a, groups.b, groups.stride_b};
  gemm.epilogue.thread = {{args.bias.empty() ? nullptr : groups.bias}, {}, {}};
  gemm.epilogue.ptr_D = groups.d;
  gemm.epilogue.dD = groups.stride_d;
  gemm.hw_info.sm_count = processors;
  run_hopper<Forward>(gemm, groups.workspace, "the experts' forward GEMM", stream);
}

}  // namespace megatrain
