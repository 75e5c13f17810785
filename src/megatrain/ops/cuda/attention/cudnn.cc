#include "megatrain/ops/cuda/attention/cudnn.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <vector>

#include "megatrain/base/math.h"
#include "megatrain/ops/attention_buckets.h"
#include "megatrain/ops/attention_cut.h"
#include "megatrain/ops/cuda/attention/launch.h"

namespace megatrain {

namespace {

constexpr int64_t kAlign = 256;

using Strides = AttentionStrides;
using Views = AttentionViews;

// Strides of the model's qkv layout, which padded documents use as well.
Strides packed_strides(const AttentionShape& shape) {
  const int64_t out = shape.heads * shape.head_dim, qkv = out + 2 * shape.kv_heads * shape.head_dim;
  return {qkv, qkv, qkv, out, out, qkv, qkv, qkv};
}

Strides strides_of(const Views& views) {
  Strides strides{};
  for (size_t tensor = 0; tensor < kStats; ++tensor) strides[tensor] = views[tensor].row_stride;
  return strides;
}

// Whether all offsets (places) of a ragged call fit in 32 bits.
bool places_hold(const AttentionShape& shape, const Strides& strides) {
  return shape.tokens * *std::max_element(strides.begin(), strides.end()) <= std::numeric_limits<int32_t>::max();
}

int64_t places_bytes(int64_t documents) { return round_up(AttentionGraphs::places_count(documents) * 4, kAlign); }

// Scratch of one bucket call: its padded tensors, then cuDNN's workspace.
struct Room {
  int64_t qkv, out, stats, grad_out, grad_qkv, workspace;  // offset of each
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

// Whether cuDNN can read the rows: 16-byte aligned heads.
bool readable(const View& view) {
  return view.dtype == DType::bf16 && reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.row_stride % 8 == 0;
}

bool takes(const AttentionShape& shape) { return shape.tokens > 0 && shape.head_dim % 8 == 0 && shape.head_dim <= 256; }

// Whether documents may have unequal lengths: at most `documents` of them, of at most `longest` tokens.
bool ragged(const AttentionShape& shape, int64_t documents, int64_t longest) {
  return documents * longest != shape.tokens;
}

View stats_view(const float* lse) { return {const_cast<float*>(lse), DType::f32, 1, 1, 1}; }

// The first token of each document of a call, and its number of tokens.
void list_documents(const Documents& documents, const Buckets& buckets, const BucketCall& call, int32_t* begin,
                    int32_t* tokens) {
  for (int64_t i = 0; i < call.count; ++i) {
    const int32_t document = buckets.documents[static_cast<size_t>(call.first + i)];
    begin[i] = documents.host_begin[document];
    tokens[i] = documents.host_begin[document + 1] - documents.host_begin[document];
  }
}

void set_tensors(PaddedCopy& copy, std::initializer_list<int> tensors, const Views& packed, const Views& padded) {
  copy.tensors = 0;
  for (const int tensor : tensors) {
    copy.packed[copy.tensors] = packed[static_cast<size_t>(tensor)];
    copy.padded[copy.tensors++] = padded[static_cast<size_t>(tensor)];
  }
}

// Bytes of scratch that a call needs before the pass's own: places, or padded tensors.
int64_t room_before(const AttentionPass& pass) {
  return pass.ragged() ? places_bytes(pass.documents)
                       : room_of(pass.shape, pass.documents * pass.length, pass.backward).workspace;
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
  const AttentionPass pass = AttentionPass::of(shape, documents.count, documents.longest, backward, strides_of(views));
  const int64_t bytes = passes_.bytes(pass);
  if (bytes == AttentionGraphs::kRefused) return false;
  passes_.execute(pass, views, scratch_.take(bytes, stream), stream);
  return true;
}

// Whether cuDNN supports documents in place (ragged). It is queried for 1024 tokens, or for more than a window. For
// heads above 128 the answer is no, because the backward is wrong: with heads of 256, cuDNN 9.14 left some keys of a
// document without a gradient (CudaOps.AttentionOfRealSizesAgreesWithTheCpu).
bool CudnnAttention::takes_ragged(const AttentionShape& shape, const Strides& strides) {
  const int64_t asked =
      std::min(bucket_length(std::max<int64_t>(shape.window + 1, 1024), BucketForm::ragged), attention_tile(shape));
  constexpr int64_t kLongestHead = 128;
  if (shape.head_dim > kLongestHead || !places_hold(shape, strides)) return false;
  for (const bool backward : {false, true}) {
    if (passes_.bytes(AttentionPass::ragged_of(shape, asked, backward, packed_strides(shape))) ==
        AttentionGraphs::kRefused)
      return false;
  }
  return true;
}

AttentionPass CudnnAttention::pass_of(const AttentionShape& shape, int64_t length, BucketForm form, bool backward,
                                      const Strides& strides) const {
  if (form == BucketForm::ragged) return AttentionPass::ragged_of(shape, length, backward, strides);
  return AttentionPass::of(shape, bucket_places(shape, length, form), length, backward, packed_strides(shape));
}

bool CudnnAttention::run_buckets(const AttentionShape& shape, const Documents& documents, bool backward,
                                 const Views& views, cudaStream_t stream) {
  const Strides strides = strides_of(views);
  const Buckets buckets = make_buckets(shape, documents.host_begin, documents.count, takes_ragged(shape, strides));
  if (!buckets.pays) return false;
  std::vector<AttentionPass> passes;
  int64_t bytes = 0;
  for (const BucketCall& call : buckets.calls) {
    passes.push_back(pass_of(shape, call.length, call.form, backward, strides));
    const int64_t of_pass = passes_.bytes(passes.back());
    if (of_pass == AttentionGraphs::kRefused) return false;
    bytes = std::max(bytes, room_before(passes.back()) + of_pass);
  }
  std::byte* memory = scratch_.take(bytes, stream);
  for (size_t i = 0; i < passes.size(); ++i) {
    if (passes[i].ragged()) {
      run_ragged(passes[i], documents, buckets, buckets.calls[i], views, memory, stream);
    } else {
      run_padded(passes[i], documents, buckets, buckets.calls[i], views, memory, stream);
    }
  }
  return true;
}

void CudnnAttention::run_ragged(const AttentionPass& pass, const Documents& documents, const Buckets& buckets,
                                const BucketCall& call, const Views& views, std::byte* memory, cudaStream_t stream) {
  RaggedPlaces fill{};
  fill.documents = pass.documents;
  list_documents(documents, buckets, call, fill.begin, fill.tokens);
  std::copy(pass.strides.begin(), pass.strides.end(), fill.strides);
  int32_t* places = reinterpret_cast<int32_t*>(memory);
  launch_places(fill, places, stream);
  passes_.execute(pass, views, memory + room_before(pass), stream, places);
}

void CudnnAttention::run_padded(const AttentionPass& pass, const Documents& documents, const Buckets& buckets,
                                const BucketCall& call, const Views& views, std::byte* memory, cudaStream_t stream) {
  const Views padded = padded_views(pass.shape, pass.documents * pass.length, pass.backward, memory);
  PaddedCopy copy{};
  copy.length = pass.length;
  copy.documents = pass.documents;
  copy.heads = pass.shape.heads;
  list_documents(documents, buckets, call, copy.begin, copy.tokens);
  const auto with_stats = [&] {
    copy.packed_lse = views[kStats].as<float>();
    copy.padded_lse = padded[kStats].as<float>();
  };
  if (pass.backward) {
    with_stats();
    set_tensors(copy, {kQ, kK, kV, kOut, kGradOut}, views, padded);
  } else {
    set_tensors(copy, {kQ, kK, kV}, views, padded);
  }
  launch_pad(copy, stream);
  passes_.execute(pass, padded, memory + room_before(pass), stream);
  if (pass.backward) {
    copy.packed_lse = nullptr;
    set_tensors(copy, {kGradQ, kGradK, kGradV}, views, padded);
  } else {
    with_stats();
    set_tensors(copy, {kOut}, views, padded);
  }
  launch_unpad(copy, stream);
}

// The calls of one direction that documents of up to `longest` tokens may need; empty if cuDNN does not support the
// longest.
std::vector<AttentionPass> CudnnAttention::bucket_passes(const AttentionShape& shape, int64_t longest, bool backward) {
  const Strides strides = packed_strides(shape);
  const bool ragged = takes_ragged(shape, strides);
  std::vector<AttentionPass> passes;
  for (const int64_t length : bucket_lengths(longest, ragged))
    passes.push_back(pass_of(shape, length, bucket_form(shape, length, ragged), backward, strides));
  if (passes_.bytes(passes.back()) == AttentionGraphs::kRefused) return {};
  return passes;
}

void CudnnAttention::prepare(const AttentionShape& shape, int64_t documents, int64_t longest) {
  if (!takes(shape) || longest <= 0 || !ragged(shape, documents, longest)) return;
  std::vector<AttentionPass> passes;
  for (const bool backward : {false, true}) {
    const std::vector<AttentionPass> more = bucket_passes(shape, longest, backward);
    passes.insert(passes.end(), more.begin(), more.end());
  }
  passes_.prepare(passes);
}

int64_t CudnnAttention::scratch_bytes(const AttentionShape& shape, int64_t documents, int64_t longest) {
  if (!takes(shape) || longest <= 0) return 0;
  int64_t most = 0;
  for (const bool backward : {false, true}) {
    const auto pass_over = [&](int64_t count, int64_t length) {
      return AttentionPass::of(shape, count, length, backward, packed_strides(shape));
    };
    // cuDNN is queried for the longest documents. The shorter ones of ragged data get an upper bound.
    if (longest > 1 && shape.tokens % longest == 0)
      most = std::max(most, passes_.bytes(pass_over(shape.tokens / longest, longest)));
    if (!ragged(shape, documents, longest)) continue;
    const std::vector<AttentionPass> passes = bucket_passes(shape, longest, backward);
    if (passes.empty()) continue;
    most = std::max(most, room_before(passes.back()) + passes_.bytes(passes.back()));
    for (const AttentionPass& pass : passes) most = std::max(most, room_before(pass) + pass.bytes_bound());
    for (int64_t length = 2; length < longest; ++length) {
      if (shape.tokens % length == 0) most = std::max(most, pass_over(shape.tokens / length, length).bytes_bound());
    }
  }
  return most;
}

}  // namespace megatrain
