// Launches of attention's own kernels. Scratch is device memory of the stated size.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "megatrain/ops/attention.h"
#include "megatrain/ops/attention_buckets.h"
#include "megatrain/ops/attention_cached.h"
#include "megatrain/ops/attention_cut.h"
#include "megatrain/ops/cuda/attention/graph.h"

namespace megatrain {

// simple.cu: any head size up to kSimpleHeadDim, fp32 or bf16. Log-sum-exps are (documents, heads, longest)
// if the documents are uniform, otherwise (tokens, heads). CudnnAttention uses the same layout, so either can run the
// backward of the other's forward.
inline constexpr int64_t kSimpleHeadDim = 512;
void launch(const AttentionForward& args, cudaStream_t stream);
int64_t attention_scratch_bytes(const AttentionShape& shape);
void launch(const AttentionBackward& args, void* scratch, cudaStream_t stream);

// wide.cu: bf16 heads of more than kLongestCutHead elements, up to 512, without sinks and caps. Log-sum-exps as above;
// scratch is attention_scratch_bytes().
bool takes_wide(const AttentionForward& args);
void launch_wide(const AttentionForward& args, cudaStream_t stream);
bool takes_wide(const AttentionBackward& args);
void launch_wide(const AttentionBackward& args, void* scratch, cudaStream_t stream);

// cached.cu: any head size up to kSimpleHeadDim, fp32 or bf16.
void launch(const CachedAttention& args, cudaStream_t stream);

// sinks.cu: corrects an attention that was computed without sinks, and computes their gradient. out and lse
// become as if the sinks had taken part.
void launch_add_sinks(const AttentionForward& args, cudaStream_t stream);
int64_t sink_gradient_scratch_bytes(const AttentionShape& shape);
void launch_sink_gradient(const AttentionBackward& args, void* scratch, cudaStream_t stream);

// padded.cu: copies rows and log-sum-exps of documents to and from documents padded to one length, bf16. Rows
// and their strides are whole 16-byte packs.
inline constexpr int kPaddedTensors = 5;
struct PaddedCopy {
  int64_t length;                        // tokens of a padded document
  int64_t documents;                     // at most kBucketCallDocuments
  int32_t begin[kBucketCallDocuments];   // first token of each document
  int32_t tokens[kBucketCallDocuments];  // of each document
  int tensors;
  View packed[kPaddedTensors];  // (T, cols)
  View padded[kPaddedTensors];  // (documents * length, cols)
  int64_t heads;
  float* packed_lse;  // (T, heads) or nullptr
  float* padded_lse;  // (documents, heads, length)
};
// Padding after each document becomes zero.
void launch_pad(const PaddedCopy& args, cudaStream_t stream);
// Writes only real tokens, no padding.
void launch_unpad(const PaddedCopy& args, cudaStream_t stream);

// The offsets (places) of a ragged call (graph.h).
struct RaggedPlaces {
  int64_t documents;                   // at most kRaggedDocuments
  int32_t begin[kRaggedDocuments];     // first token of each document
  int32_t tokens[kRaggedDocuments];    // of each document; 0 for unused entries
  int64_t strides[kAttentionTensors];  // elements per token
};
void launch_places(const RaggedPlaces& args, int32_t* places, cudaStream_t stream);

// tiles.cu: fp32 sums of bf16 partial gradients. Columns and strides are multiples of 8.
// sum = partial (first), or sum += partial
void launch_add_partial(const View& partial, const View& sum, bool first, cudaStream_t stream);
void launch_round_sum(const View& sum, const View& out, cudaStream_t stream);

// Merges the output over the keys so far with that over some more keys, each weighted by its part of the softmax's sum.
struct MergePartial {
  View partial;              // (rows, heads * D) bf16
  const float* partial_lse;  // (heads, rows)
  View sum;                  // (rows, heads * D) fp32
  const float* lse;          // (heads, rows) of the keys so far; nullptr: none yet
  float* merged_lse;         // (heads, rows)
  int64_t head_dim;
};
void launch_merge_partial(const MergePartial& args, cudaStream_t stream);

}  // namespace megatrain
