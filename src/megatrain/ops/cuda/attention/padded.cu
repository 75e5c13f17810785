#include "megatrain/ops/cuda/attention/launch.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kWarps = 8;
constexpr int kPackElements = 8;  // bf16 elements in 16 bytes

// A warp owns a row of a padded document in one tensor (blockIdx.y), or its log-sum-exps (the last blockIdx.y).
template <bool kPad>
__global__ void padded_kernel(__grid_constant__ const PaddedCopy args) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (row >= args.documents * args.length) return;
  const int document = static_cast<int>(row / args.length);
  const int64_t place = row - document * args.length;
  const bool real = place < args.tokens[document];
  if (!kPad && !real) return;
  const int64_t token = args.begin[document] + place;

  if (static_cast<int>(blockIdx.y) == args.tensors) {
    for (int64_t head = lane; head < args.heads; head += 32) {
      float* padded = args.padded_lse + (document * args.heads + head) * args.length + place;
      float* packed = args.packed_lse + token * args.heads + head;
      if constexpr (kPad) {
        *padded = real ? *packed : 0.0f;
      } else {
        *packed = *padded;
      }
    }
    return;
  }

  const View& packed_view = args.packed[blockIdx.y];
  const View& padded_view = args.padded[blockIdx.y];
  uint4* packed = reinterpret_cast<uint4*>(static_cast<Bf16*>(packed_view.data) + token * packed_view.row_stride);
  uint4* padded = reinterpret_cast<uint4*>(static_cast<Bf16*>(padded_view.data) + row * padded_view.row_stride);
  const int packs = static_cast<int>(padded_view.cols / kPackElements);
#pragma unroll 4
  for (int i = lane; i < packs; i += 32) {
    if constexpr (kPad) {
      padded[i] = real ? packed[i] : uint4{0, 0, 0, 0};
    } else {
      packed[i] = padded[i];
    }
  }
}

template <bool kPad>
void launch_copy(const PaddedCopy& args, cudaStream_t stream) {
  ensure(args.documents <= kBucketCallDocuments, "a padded copy has at most kBucketCallDocuments documents");
  const int parts = args.tensors + (args.packed_lse != nullptr ? 1 : 0);
  const dim3 grid(grid_size(ceil_div(args.documents * args.length, kWarps)), static_cast<unsigned>(parts));
  padded_kernel<kPad><<<grid, 32 * kWarps, 0, stream>>>(args);
  check_launch();
}

// One thread per document.
__global__ void places_kernel(__grid_constant__ const RaggedPlaces args, int32_t* places) {
  const int64_t document = threadIdx.x, row = args.documents + 1;
  const bool real = document < args.documents;
  if (document >= row) return;
  for (int tensor = 0; tensor < kAttentionTensors; ++tensor)
    places[tensor * row + document] = real ? static_cast<int32_t>(args.begin[document] * args.strides[tensor]) : 0;
  if (real) places[kAttentionTensors * row + document] = args.tokens[document];
}

}  // namespace

void launch_places(const RaggedPlaces& args, int32_t* places, cudaStream_t stream) {
  ensure(args.documents <= kRaggedDocuments, "a ragged call has at most kRaggedDocuments documents");
  places_kernel<<<1, static_cast<unsigned>(kRaggedDocuments) + 1, 0, stream>>>(args, places);
  check_launch();
}

void launch_pad(const PaddedCopy& args, cudaStream_t stream) { launch_copy<true>(args, stream); }
void launch_unpad(const PaddedCopy& args, cudaStream_t stream) { launch_copy<false>(args, stream); }

}  // namespace megatrain
