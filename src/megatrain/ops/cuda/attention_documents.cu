#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/ops/cuda/numeric.cuh"

namespace megatrain {

namespace {

__global__ void tables_kernel(RaggedTables args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i > args.padded) return;
  const int64_t count = args.documents.count;
  const int64_t begin = args.documents.begin[i < count ? i : count];
  const int64_t end = args.documents.begin[i + 1 < count ? i + 1 : count];
  if (i < args.padded) args.lengths[i] = static_cast<int32_t>(end - begin);
  for (int t = 0; t < args.tensors; ++t) args.offsets[t][i] = begin * args.strides[t];
}

}  // namespace

void launch(const RaggedTables& args, cudaStream_t stream) {
  constexpr int kThreads = 128;
  tables_kernel<<<grid_size(ceil_div(args.padded + 1, kThreads)), kThreads, 0, stream>>>(args);
  check_launch();
}

}  // namespace megatrain
