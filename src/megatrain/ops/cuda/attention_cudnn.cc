#include "megatrain/ops/cuda/attention_cudnn.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/ops/attention_buckets.h"
#include "megatrain/ops/cuda/kernels.h"

namespace megatrain {

namespace {

constexpr int64_t kPairsBytes = 512 * kMiB;
constexpr int64_t kAlign = 256;

using Strides = std::array<int64_t, kStats>;
using Views = std::array<View, kAttentionTensors>;

// Bytes of the deterministic backward's matrix of one head.
int64_t pairs_bytes(int64_t length) { return round_up(length, 64) * round_up(length, 128) * 2; }

// How a pass over equal documents is cut into equal calls.
struct Cut {
  int64_t documents;  // of a call, a divisor of all
  int64_t kv_heads;   // of a call; all of them unless a call is one document
};

Cut cut_of(const AttentionShape& shape, int64_t documents, int64_t length, bool backward) {
  if (!backward) return {documents, shape.kv_heads};
  const int64_t head = pairs_bytes(length), group = shape.heads / shape.kv_heads;
  const int64_t room = std::max<int64_t>(kPairsBytes / (head * shape.heads), 1);
  Cut cut{1, shape.kv_heads};
  for (int64_t n = 1; n <= std::min(room, documents); ++n) {
    if (documents % n == 0) cut.documents = n;
  }
  if (cut.documents == 1) {
    const int64_t heads = std::max<int64_t>(kPairsBytes / (head * group), 1);
    while (cut.kv_heads > 1 && (cut.kv_heads > heads || shape.kv_heads % cut.kv_heads != 0)) --cut.kv_heads;
  }
  return cut;
}

AttentionCase case_of(const AttentionShape& shape, int64_t documents, int64_t length, bool backward,
                      const Strides& strides) {
  const Cut cut = cut_of(shape, documents, length, backward);
  AttentionCase c{.backward = backward,
                  .documents = cut.documents,
                  .length = length,
                  .heads = cut.kv_heads * (shape.heads / shape.kv_heads),
                  .kv_heads = cut.kv_heads,
                  .head_dim = shape.head_dim,
                  .window = shape.window > 0 && shape.window < length ? shape.window : 0,
                  .scale = shape.scale,
                  .strides = strides};
  for (int tensor = 0; tensor < kStats; ++tensor) {
    if (!is_used(tensor, backward)) c.strides[static_cast<size_t>(tensor)] = 0;
  }
  return c;
}

// Strides of tensors that lie as the model has them and as padded documents do.
Strides packed_strides(const AttentionShape& shape) {
  const int64_t out = shape.heads * shape.head_dim, qkv = out + 2 * shape.kv_heads * shape.head_dim;
  return {qkv, qkv, qkv, out, out, qkv, qkv, qkv};
}

Strides strides_of(const Views& views) {
  Strides strides;
  for (size_t tensor = 0; tensor < strides.size(); ++tensor) strides[tensor] = views[tensor].row_stride;
  return strides;
}

// What cuDNN's workspace comes to: in backward the pairs, each head's row sums, and for grouped heads the gradients of
// keys and values before they are summed.
int64_t workspace_bound(const AttentionShape& shape, int64_t documents, int64_t length, bool backward) {
  if (!backward) return kMiB;
  const Cut cut = cut_of(shape, documents, length, true);
  const int64_t heads = cut.documents * cut.kv_heads * (shape.heads / shape.kv_heads);
  return heads * (pairs_bytes(length) + length * (4 * shape.head_dim + 4)) + kMiB;
}

// Scratch of one bucket call: its padded tensors, then cuDNN's workspace.
struct Room {
  int64_t qkv, out, stats, grad_out, grad_qkv, workspace;  // where each begins
};

Room room_of(const AttentionShape& shape, int64_t tokens, bool backward) {
  const Strides strides = packed_strides(shape);
  Room room{};
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t begin = at;
    at += round_up(bytes, kAlign);
    return begin;
  };
  room.qkv = take(tokens * strides[kQ] * 2);
  room.out = take(tokens * strides[kOut] * 2);
  room.stats = take(tokens * shape.heads * 4);
  if (backward) {
    room.grad_out = take(tokens * strides[kGradOut] * 2);
    room.grad_qkv = take(tokens * strides[kGradQ] * 2);
  }
  room.workspace = at;
  return room;
}

Views padded_views(const AttentionShape& shape, int64_t tokens, bool backward, std::byte* memory) {
  const Room room = room_of(shape, tokens, backward);
  const int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
  Views views{};
  const auto split = [&](int64_t begin, int first) {
    const View all = matrix(memory + begin, DType::bf16, tokens, q + 2 * kv);
    views[static_cast<size_t>(first)] = all.slice_cols(0, q);
    views[static_cast<size_t>(first) + 1] = all.slice_cols(q, kv);
    views[static_cast<size_t>(first) + 2] = all.slice_cols(q + kv, kv);
  };
  split(room.qkv, kQ);
  views[kOut] = matrix(memory + room.out, DType::bf16, tokens, q);
  views[kStats] = vector(memory + room.stats, DType::f32, tokens * shape.heads);
  if (backward) {
    views[kGradOut] = matrix(memory + room.grad_out, DType::bf16, tokens, q);
    split(room.grad_qkv, kGradQ);
  }
  return views;
}

// Enqueues every call of a pass over `documents` documents of one length.
void execute(AttentionGraphs& graphs, const AttentionShape& shape, int64_t documents, const AttentionCase& c,
             const Views& views, void* workspace, cudaStream_t stream) {
  const int64_t group = shape.heads / shape.kv_heads;
  for (int64_t first = 0; first < documents; first += c.documents) {
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; kv_head += c.kv_heads) {
      std::array<void*, kAttentionTensors> data{};
      for (int tensor = 0; tensor < kAttentionTensors; ++tensor) {
        if (!is_used(tensor, c.backward)) continue;
        const View& view = views[static_cast<size_t>(tensor)];
        const int64_t head = is_key(tensor) ? kv_head : kv_head * group;
        // Cut by heads only when a call is one document, so (documents, heads, length) is a plain offset too.
        const int64_t bytes = tensor == kStats ? (first * shape.heads + head) * c.length * 4
                                               : (first * c.length * view.row_stride + head * shape.head_dim) * 2;
        data[static_cast<size_t>(tensor)] = static_cast<std::byte*>(view.data) + bytes;
      }
      graphs.execute(c, data, workspace, stream);
    }
  }
}

// Whether cuDNN can read the rows: 16-byte aligned heads.
bool readable(const View& view) {
  return view.dtype == DType::bf16 && reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.row_stride % 8 == 0;
}

bool takes(const AttentionShape& shape) { return shape.tokens > 0 && shape.head_dim % 8 == 0 && shape.head_dim <= 256; }

View stats_view(const float* lse) { return {const_cast<float*>(lse), DType::f32, 1, 1, 1}; }

PaddedCopy copy_of(const AttentionShape& shape, const Documents& documents, const Buckets& buckets,
                   const BucketCall& call) {
  PaddedCopy copy{};
  copy.length = call.length;
  copy.documents = call.count;
  copy.heads = shape.heads;
  for (int64_t i = 0; i < call.count; ++i) {
    const int32_t document = buckets.documents[static_cast<size_t>(call.first + i)];
    copy.begin[i] = documents.host_begin[document];
    copy.tokens[i] = documents.host_begin[document + 1] - documents.host_begin[document];
  }
  return copy;
}

void set_tensors(PaddedCopy& copy, std::initializer_list<int> tensors, const Views& packed, const Views& padded) {
  copy.tensors = 0;
  for (const int tensor : tensors) {
    copy.packed[copy.tensors] = packed[static_cast<size_t>(tensor)];
    copy.padded[copy.tensors++] = padded[static_cast<size_t>(tensor)];
  }
}

}  // namespace

bool CudnnAttention::forward(const AttentionForward& args, cudaStream_t stream) {
  return run(args.shape, args.documents, false,
             {args.q, args.k, args.v, args.out, View{}, View{}, View{}, View{}, stats_view(args.lse)}, stream);
}

bool CudnnAttention::backward(const AttentionBackward& args, cudaStream_t stream) {
  return run(
      args.shape, args.documents, true,
      {args.q, args.k, args.v, args.out, args.grad_out, args.grad_q, args.grad_k, args.grad_v, stats_view(args.lse)},
      stream);
}

bool CudnnAttention::run(const AttentionShape& shape, const Documents& documents, bool backward, const Views& views,
                         cudaStream_t stream) {
  if (!takes(shape)) return false;
  for (int tensor = 0; tensor < kStats; ++tensor) {
    if (is_used(tensor, backward) && !readable(views[static_cast<size_t>(tensor)])) return false;
  }
  return documents.uniform ? run_uniform(shape, documents, backward, views, stream)
                           : run_buckets(shape, documents, backward, views, stream);
}

bool CudnnAttention::run_uniform(const AttentionShape& shape, const Documents& documents, bool backward,
                                 const Views& views, cudaStream_t stream) {
  if (documents.longest <= 1) return false;
  const AttentionCase c = case_of(shape, documents.count, documents.longest, backward, strides_of(views));
  const int64_t workspace = graphs_.workspace(c);
  if (workspace == AttentionGraphs::kRefused) return false;
  execute(graphs_, shape, documents.count, c, views, scratch_.take(std::max(workspace, kAlign), stream), stream);
  return true;
}

bool CudnnAttention::run_buckets(const AttentionShape& shape, const Documents& documents, bool backward,
                                 const Views& views, cudaStream_t stream) {
  const Buckets buckets = make_buckets(documents.host_begin, documents.count);
  if (!buckets.pays) return false;
  std::vector<AttentionCase> cases;
  int64_t bytes = 0;
  for (const BucketCall& call : buckets.calls) {
    cases.push_back(case_of(shape, call.count, call.length, backward, packed_strides(shape)));
    const int64_t workspace = graphs_.workspace(cases.back());
    if (workspace == AttentionGraphs::kRefused) return false;
    bytes = std::max(bytes, room_of(shape, call.count * call.length, backward).workspace + std::max(workspace, kAlign));
  }
  std::byte* memory = scratch_.take(bytes, stream);
  for (size_t i = 0; i < cases.size(); ++i) {
    const BucketCall& call = buckets.calls[i];
    const int64_t tokens = call.count * call.length;
    const Views padded = padded_views(shape, tokens, backward, memory);
    PaddedCopy copy = copy_of(shape, documents, buckets, call);
    const auto with_stats = [&] {
      copy.packed_lse = views[kStats].as<float>();
      copy.padded_lse = padded[kStats].as<float>();
    };
    if (backward) {
      with_stats();
      set_tensors(copy, {kQ, kK, kV, kOut, kGradOut}, views, padded);
    } else {
      set_tensors(copy, {kQ, kK, kV}, views, padded);
    }
    launch_pad(copy, stream);
    execute(graphs_, shape, call.count, cases[i], padded, memory + room_of(shape, tokens, backward).workspace, stream);
    if (backward) {
      copy.packed_lse = nullptr;
      set_tensors(copy, {kGradQ, kGradK, kGradV}, views, padded);
    } else {
      with_stats();
      set_tensors(copy, {kOut}, views, padded);
    }
    launch_unpad(copy, stream);
  }
  return true;
}

int64_t CudnnAttention::scratch_bytes(const AttentionShape& shape, int64_t documents, int64_t longest) {
  if (!takes(shape) || longest <= 0) return 0;
  const bool ragged = documents * longest != shape.tokens;
  int64_t most = 0;
  for (const bool backward : {false, true}) {
    // cuDNN is asked of the longest documents; the shorter ones of ragged data are bounded by arithmetic.
    if (longest > 1 && shape.tokens % longest == 0) {
      const int64_t count = shape.tokens / longest;
      most = std::max(most, graphs_.workspace(case_of(shape, count, longest, backward, packed_strides(shape))));
    }
    if (!ragged) continue;
    const int64_t last = bucket_length(longest);
    const int64_t asked =
        graphs_.workspace(case_of(shape, bucket_documents(last, shape.tokens), last, backward, packed_strides(shape)));
    if (asked == AttentionGraphs::kRefused) continue;
    for (int64_t length = kShortestBucket; length <= last; length = bucket_length(length + 1)) {
      const int64_t count = bucket_documents(length, shape.tokens);
      const int64_t workspace = std::max(length == last ? asked : 0, workspace_bound(shape, count, length, backward));
      most = std::max(most, room_of(shape, count * length, backward).workspace + workspace);
    }
    for (int64_t length = 2; length < longest; ++length) {
      if (shape.tokens % length == 0)
        most = std::max(most, workspace_bound(shape, shape.tokens / length, length, backward));
    }
  }
  return most;
}

}  // namespace megatrain
