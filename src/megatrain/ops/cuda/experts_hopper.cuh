// Shared by the three matmuls of experts_hopper.h: the kernel type, and the groups' sizes, pointers and strides.
#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/dispatch_policy.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include <cute/tensor.hpp>

#include "megatrain/ops/cuda/experts_hopper.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

using HopperTile = cute::Shape<cute::_128, cute::_256, cute::_64>;
using HopperCluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
using HopperElement = cutlass::bfloat16_t;

// D = A B with A (m, k) and B (k, n) in CUTLASS's layouts, D row-major of type `Out`. Source is void, or D's element
// type for beta * C. Fusion is what the epilogue computes.
template <class LayoutA, class LayoutB, class Source, class Out, class Fusion>
struct HopperGemm {
  using Layout = cutlass::layout::RowMajor;
  static constexpr int kAlign = 8, kAlignOut = static_cast<int>(16 / sizeof(Out));
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, HopperTile, HopperCluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, Source, Layout*, kAlignOut, Out, Layout*,
      kAlignOut, cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative, Fusion>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, HopperElement, LayoutA*, kAlign, HopperElement, LayoutB*,
      kAlign, float, HopperTile, HopperCluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
      cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative>::CollectiveOp;
  using Problem = cute::Shape<int, int, int>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<Problem>, Mainloop, Epilogue>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  using StrideA = typename Kernel::InternalStrideA;
  using StrideB = typename Kernel::InternalStrideB;
  using StrideD = typename Kernel::InternalStrideD;
};

// The rows of all experts, or one matrix per expert. Expert i's data begins at its first row, or at i * step elements.
struct HopperOperand {
  void* first;
  int64_t leading;  // elements from one row to the next
  bool by_rows;
  int64_t step;
};

inline HopperOperand operand_of(const View& rows) { return {rows.data, rows.row_stride, true, 0}; }
inline HopperOperand operand_of(const ExpertWeights& weights) {
  return {weights.first.data, weights.first.row_stride, false, weights.stride};
}

template <class T>
__device__ T* place_of(const HopperOperand& operand, int64_t expert, int64_t row) {
  return static_cast<T*>(operand.first) + (operand.by_rows ? row * operand.leading : expert * operand.step);
}

// Sets the one stride of a matrix that is not a compile-time constant.
template <class Stride>
__device__ void set_leading(Stride& stride, int64_t leading) {
  if constexpr (cute::is_static<cute::remove_cvref_t<decltype(cute::get<0>(stride))>>::value) {
    cute::get<1>(stride) = leading;
  } else {
    cute::get<0>(stride) = leading;
  }
}

// Arrays in scratch with one entry per expert.
template <class Gemm, class Out>
struct HopperGroups {
  typename Gemm::Problem* problems;
  const HopperElement** a;
  const HopperElement** b;
  const HopperElement** bias;
  Out** d;
  typename Gemm::StrideA* stride_a;
  typename Gemm::StrideB* stride_b;
  typename Gemm::StrideD* stride_d;
  void* workspace;
};

template <class Gemm, class Out>
HopperGroups<Gemm, Out> groups_in(void* scratch, int64_t experts) {
  std::byte* at = static_cast<std::byte*>(scratch);
  const auto take = [&]<class T>(T*& array) {
    static_assert(sizeof(T) <= kHopperMostBytes);
    array = reinterpret_cast<T*>(at);
    at += round_up(experts * static_cast<int64_t>(sizeof(T)), kHopperAlign);
  };
  HopperGroups<Gemm, Out> groups;
  take(groups.problems);
  take(groups.a);
  take(groups.b);
  take(groups.bias);
  take(groups.d);
  take(groups.stride_a);
  take(groups.stride_b);
  take(groups.stride_d);
  groups.workspace = at;
  return groups;
}

// One thread per expert. kRagged says which of m, n, k is the number of the expert's rows. An expert without rows has
// no tiles.
template <class Gemm, class Out, int kRagged>
__global__ void hopper_groups_kernel(HopperGroups<Gemm, Out> groups, const int32_t* begin, const int32_t* origin,
                                     int experts, int m, int n, int k, HopperOperand a, HopperOperand b,
                                     HopperOperand bias, HopperOperand d) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= experts) return;
  const int row = begin[i] - *origin, rows = begin[i + 1] - begin[i];
  if constexpr (kRagged == 0) {
    m = rows;
  } else {
    k = rows;
    if (rows == 0) m = 0;
  }
  groups.problems[i] = cute::make_shape(m, n, k);
  groups.a[i] = place_of<const HopperElement>(a, i, row);
  groups.b[i] = place_of<const HopperElement>(b, i, row);
  groups.bias[i] = place_of<const HopperElement>(bias, i, row);
  groups.d[i] = place_of<Out>(d, i, row);
  typename Gemm::StrideA stride_a{};
  typename Gemm::StrideB stride_b{};
  typename Gemm::StrideD stride_d{};
  set_leading(stride_a, a.leading);
  set_leading(stride_b, b.leading);
  set_leading(stride_d, d.leading);
  groups.stride_a[i] = stride_a;
  groups.stride_b[i] = stride_b;
  groups.stride_d[i] = stride_d;
}

template <class Gemm, class Out, int kRagged>
HopperGroups<Gemm, Out> write_groups(void* scratch, const ExpertRows& rows, int64_t m, int64_t n, int64_t k,
                                     const HopperOperand& a, const HopperOperand& b, const HopperOperand& bias,
                                     const HopperOperand& d, cudaStream_t stream) {
  const HopperGroups<Gemm, Out> groups = groups_in<Gemm, Out>(scratch, rows.experts);
  hopper_groups_kernel<Gemm, Out, kRagged><<<grid_size(ceil_div(rows.experts, 64)), 64, 0, stream>>>(
      groups, rows.begin, rows.first(), static_cast<int>(rows.experts), static_cast<int>(m), static_cast<int>(n),
      static_cast<int>(k), a, b, bias, d);
  check_launch();
  return groups;
}

inline void check_cutlass(cutlass::Status status, const char* what) {
  if (status != cutlass::Status::kSuccess) {
    fail_internal(std::string("CUTLASS refuses ") + what + ": " + cutlass::cutlassGetStatusString(status));
  }
}

template <class Gemm>
void run_hopper(const typename Gemm::Gemm::Arguments& args, void* workspace, const char* what, cudaStream_t stream) {
  ensure(static_cast<int64_t>(Gemm::Gemm::get_workspace_size(args)) <= args.hw_info.sm_count * kHopperProcessorBytes,
         "a grouped GEMM's workspace is a few tensor maps per multiprocessor");
  typename Gemm::Gemm gemm;
  check_cutlass(gemm.initialize(args, workspace, stream), what);
  check_cutlass(gemm.run(stream), what);
  check_launch();
}

}  // namespace megatrain
