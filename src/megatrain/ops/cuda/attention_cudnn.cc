#include "megatrain/ops/cuda/attention_cudnn.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/device/cuda/check.h"
#include "megatrain/ops/attention_buckets.h"
#include "megatrain/ops/attention_cut.h"
#include "megatrain/ops/cuda/attention_cases.h"
#include "megatrain/ops/cuda/kernels.h"

namespace megatrain {

namespace {

constexpr int64_t kAlign = 256;

size_t as_size(int64_t value) { return static_cast<size_t>(value); }

using Strides = AttentionStrides;
using Views = std::array<View, kAttentionTensors>;

AttentionCut cut_of(const AttentionShape& shape, int64_t documents, int64_t length, bool backward) {
  return backward ? attention_cut(shape, documents, length) : AttentionCut{documents, shape.kv_heads, length};
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

// What the scratch of a pass comes to.
int64_t scratch_bound(const AttentionShape& shape, int64_t documents, int64_t length, bool backward) {
  return backward ? attention_backward_bytes(shape, documents, length) : kMiB;
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

// The place of a call's first token and head in a tensor that is no list of log-sum-exps.
void* place(const View& view, int64_t token, int64_t head, int64_t head_dim) {
  return static_cast<std::byte*>(view.data) + (token * view.row_stride + head * head_dim) * 2;
}

// Whether cuDNN can read the rows: 16-byte aligned heads.
bool readable(const View& view) {
  return view.dtype == DType::bf16 && reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.row_stride % 8 == 0;
}

bool takes(const AttentionShape& shape) { return shape.tokens > 0 && shape.head_dim % 8 == 0 && shape.head_dim <= 256; }

// Whether documents of at most `longest` tokens, so many of them at most, may be of unequal length.
bool ragged(const AttentionShape& shape, int64_t documents, int64_t longest) {
  return documents * longest != shape.tokens;
}

View stats_view(const float* lse) { return {const_cast<float*>(lse), DType::f32, 1, 1, 1}; }

PaddedCopy copy_of(const AttentionShape& shape, const Documents& documents, const Buckets& buckets,
                   const BucketCall& call) {
  PaddedCopy copy{};
  copy.length = call.length;
  copy.documents = call.places;
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

CudnnAttention::Pass CudnnAttention::Pass::of(const AttentionShape& shape, int64_t documents, int64_t length,
                                              bool backward, const AttentionStrides& strides) {
  return {shape, documents, length, backward, cut_of(shape, documents, length, backward), strides};
}

std::vector<AttentionCase> CudnnAttention::Pass::cases() const {
  return cases_of(shape, cut, length, backward, strides);
}

// Scratch of a pass over equal documents; kRefused when cuDNN does not take one of its cases.
int64_t CudnnAttention::pass_bytes(const Pass& pass) {
  int64_t most = kAlign;
  for (const AttentionCase& c : pass.cases()) {
    const int64_t workspace = graphs_.workspace(c);
    if (workspace == AttentionGraphs::kRefused) return workspace;
    most = std::max(most, workspace);
  }
  return most + (pass.cut.tiled(pass.length) ? tile_scratch(pass.shape, pass.cut, pass.length).workspace : 0);
}

// One document and some of its key heads, and the scratch of its tiled backward (ops/attention_cut.h).
struct CudnnAttention::Tiled {
  const Pass& pass;
  const Views& views;
  int64_t document, kv_head;
  std::byte* scratch;
  cudaStream_t stream;
  int64_t group = pass.shape.heads / pass.shape.kv_heads;
  int64_t begin = document * pass.length;  // its first token
  int64_t head = kv_head * group, heads = pass.cut.kv_heads * group;
  int64_t keys = pass.cut.kv_heads * pass.shape.head_dim, queries = group * keys;  // columns
  TileScratch at = tile_scratch(pass.shape, pass.cut, pass.length);
  View sum_k = matrix(scratch + at.sum_k, DType::f32, pass.length, keys);
  View sum_v = matrix(scratch + at.sum_v, DType::f32, pass.length, keys);
  View partial_q = matrix(scratch + at.partial_q, DType::bf16, pass.cut.tile, queries);
  View partial_k = matrix(scratch + at.partial_k, DType::bf16, pass.cut.tile, keys);
  View partial_v = matrix(scratch + at.partial_v, DType::bf16, pass.cut.tile, keys);

  // Rows of the document in a tensor of the caller's, and the heads of this call.
  View part(int tensor, int64_t row, int64_t count) const {
    return views[as_size(tensor)]
        .slice_rows(begin + row, count)
        .slice_cols((is_key(tensor) ? kv_head : head) * pass.shape.head_dim, is_key(tensor) ? keys : queries);
  }

  // cuDNN reads a call's log-sum-exps one head right after the other.
  void copy_stats(int64_t query, int64_t count) const {
    const float* stats = views[kStats].as<float>() + (document * pass.shape.heads + head) * pass.length + query;
    CUDA_CHECK(cudaMemcpy2DAsync(scratch + at.stats, as_size(count * 4), stats, as_size(pass.length * 4),
                                 as_size(count * 4), as_size(heads), cudaMemcpyDeviceToDevice, stream));
  }

  // Adds what a call gave `count` keys from row `from` of it on; they begin at `key` of the document.
  void add_keys(int64_t from, int64_t key, int64_t count, bool first) const {
    if (count == 0) return;
    launch_add_partial(partial_k.slice_rows(from, count), sum_k.slice_rows(key, count), first, stream);
    launch_add_partial(partial_v.slice_rows(from, count), sum_v.slice_rows(key, count), first, stream);
  }

  void round_keys() const {
    launch_round_sum(sum_k, part(kGradK, 0, pass.length), stream);
    launch_round_sum(sum_v, part(kGradV, 0, pass.length), stream);
  }
};

// Enqueues every call of a pass over equal documents.
void CudnnAttention::execute(const Pass& pass, const Views& views, std::byte* scratch, cudaStream_t stream) {
  const AttentionCut& cut = pass.cut;
  for (int64_t first = 0; first < pass.documents; first += cut.documents) {
    for (int64_t kv_head = 0; kv_head < pass.shape.kv_heads; kv_head += cut.kv_heads) {
      if (cut.tiled(pass.length)) {
        const Tiled tiled{pass, views, first, kv_head, scratch, stream};
        cut.overlap > 0 ? execute_pieces(tiled) : execute_tiles(tiled);
      } else {
        const AttentionCase c = case_of(pass.shape, cut, pass.length, pass.backward, pass.strides);
        graphs_.execute(c, call_data(pass, views, first * pass.length, first * pass.length, kv_head), scratch, stream);
      }
    }
  }
}

// The tensors of a call that begins with these tokens, of queries and of keys, and this key head.
std::array<void*, kAttentionTensors> CudnnAttention::call_data(const Pass& pass, const Views& views, int64_t query,
                                                               int64_t key, int64_t kv_head) const {
  const int64_t head = kv_head * (pass.shape.heads / pass.shape.kv_heads);
  std::array<void*, kAttentionTensors> data{};
  for (int tensor = 0; tensor < kStats; ++tensor) {
    if (!is_used(tensor, pass.backward)) continue;
    data[static_cast<size_t>(tensor)] = place(views[static_cast<size_t>(tensor)], is_key(tensor) ? key : query,
                                              is_key(tensor) ? kv_head : head, pass.shape.head_dim);
  }
  // (documents, heads, length); of whole documents
  data[kStats] = views[kStats].as<float>() + (query / pass.length * pass.shape.heads + head) * pass.length;
  return data;
}

void CudnnAttention::execute_tile(const Tiled& tiled, const AttentionCase& c, int64_t query, int64_t key,
                                  void* grad_out) {
  std::array<void*, kAttentionTensors> data =
      call_data(tiled.pass, tiled.views, tiled.begin + query, tiled.begin + key, tiled.kv_head);
  if (grad_out != nullptr) data[kGradOut] = grad_out;
  data[kGradQ] = tiled.partial_q.data;
  data[kGradK] = tiled.partial_k.data;
  data[kGradV] = tiled.partial_v.data;
  data[kStats] = tiled.scratch + tiled.at.stats;
  graphs_.execute(c, data, tiled.scratch + tiled.at.workspace, tiled.stream);
}

void CudnnAttention::execute_tiles(const Tiled& tiled) {
  const Pass& pass = tiled.pass;
  const AttentionCut& cut = pass.cut;
  const int64_t tiles = ceil_div(pass.length, cut.tile);
  const View sum_q = matrix(tiled.scratch + tiled.at.sum_q, DType::f32, cut.tile, tiled.queries);
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t query = i * cut.tile, count = std::min(cut.tile, pass.length - query);
    tiled.copy_stats(query, count);
    for (int64_t j = 0; j <= i; ++j) {
      const AttentionCase c = tile_case(pass.shape, cut, pass.length, i + 1 == tiles, i == j, pass.strides);
      execute_tile(tiled, c, query, j * cut.tile, nullptr);
      launch_add_partial(tiled.partial_q.slice_rows(0, count), sum_q.slice_rows(0, count), j == 0, tiled.stream);
      tiled.add_keys(0, j * cut.tile, c.keys, i == j);
    }
    launch_round_sum(sum_q.slice_rows(0, count), tiled.part(kGradQ, query, count), tiled.stream);
  }
  tiled.round_keys();
}

void CudnnAttention::execute_pieces(const Tiled& tiled) {
  const Pass& pass = tiled.pass;
  const int64_t tile = pass.cut.tile, row_bytes = tiled.queries * 2;
  const AttentionCase c = piece_case(pass.shape, pass.cut, pass.strides);
  std::byte* grad_out = tiled.scratch + tiled.at.grad_out;
  const auto copy_rows = [&](void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t rows) {
    CUDA_CHECK(cudaMemcpy2DAsync(to, as_size(to_stride * 2), from, as_size(from_stride * 2), as_size(row_bytes),
                                 as_size(rows), cudaMemcpyDeviceToDevice, tiled.stream));
  };
  for (const AttentionPiece& piece : attention_pieces(pass.cut, pass.length)) {
    const int64_t old = piece.new_begin - piece.begin, fresh = tile - old;
    const View given = tiled.part(kGradOut, piece.new_begin, fresh),
               wanted = tiled.part(kGradQ, piece.new_begin, fresh);
    tiled.copy_stats(piece.begin, tile);
    CUDA_CHECK(cudaMemsetAsync(grad_out, 0, as_size(old * row_bytes), tiled.stream));
    copy_rows(grad_out + old * row_bytes, tiled.queries, given.data, given.row_stride, fresh);
    execute_tile(tiled, c, piece.begin, piece.begin, grad_out);
    copy_rows(wanted.data, wanted.row_stride, tiled.partial_q.slice_rows(old, fresh).data, tiled.queries, fresh);
    tiled.add_keys(0, piece.begin, old, false);
    tiled.add_keys(old, piece.new_begin, fresh, true);
  }
  tiled.round_keys();
}

bool CudnnAttention::run_uniform(const AttentionShape& shape, const Documents& documents, bool backward,
                                 const Views& views, cudaStream_t stream) {
  if (documents.longest <= 1) return false;
  const Pass pass = Pass::of(shape, documents.count, documents.longest, backward, strides_of(views));
  const int64_t bytes = pass_bytes(pass);
  if (bytes == AttentionGraphs::kRefused) return false;
  execute(pass, views, scratch_.take(bytes, stream), stream);
  return true;
}

bool CudnnAttention::run_buckets(const AttentionShape& shape, const Documents& documents, bool backward,
                                 const Views& views, cudaStream_t stream) {
  const Buckets buckets = make_buckets(documents.host_begin, documents.count);
  if (!buckets.pays) return false;
  std::vector<Pass> passes;
  int64_t bytes = 0;
  for (const BucketCall& call : buckets.calls) {
    passes.push_back(Pass::of(shape, call.places, call.length, backward, packed_strides(shape)));
    const int64_t of_pass = pass_bytes(passes.back());
    if (of_pass == AttentionGraphs::kRefused) return false;
    bytes = std::max(bytes, room_of(shape, call.places * call.length, backward).workspace + of_pass);
  }
  std::byte* memory = scratch_.take(bytes, stream);
  for (size_t i = 0; i < passes.size(); ++i) {
    const BucketCall& call = buckets.calls[i];
    const int64_t tokens = call.places * call.length;
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
    execute(passes[i], padded, memory + room_of(shape, tokens, backward).workspace, stream);
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

void CudnnAttention::prepare(const AttentionShape& shape, int64_t documents, int64_t longest) {
  if (!takes(shape) || longest <= 0 || !ragged(shape, documents, longest)) return;
  const int64_t last = bucket_length(longest);
  std::vector<AttentionCase> cases;
  for (const bool backward : {false, true}) {
    const auto pass_of = [&](int64_t length) {
      return Pass::of(shape, bucket_documents(length, shape.tokens), length, backward, packed_strides(shape));
    };
    if (pass_bytes(pass_of(last)) == AttentionGraphs::kRefused) continue;
    for (int64_t length = kShortestBucket; length <= last; length = bucket_length(length + 1)) {
      const std::vector<AttentionCase> more = pass_of(length).cases();
      cases.insert(cases.end(), more.begin(), more.end());
    }
  }
  graphs_.prepare(cases);
}

int64_t CudnnAttention::scratch_bytes(const AttentionShape& shape, int64_t documents, int64_t longest) {
  if (!takes(shape) || longest <= 0) return 0;
  int64_t most = 0;
  for (const bool backward : {false, true}) {
    const auto asked = [&](int64_t count, int64_t length) {
      return pass_bytes(Pass::of(shape, count, length, backward, packed_strides(shape)));
    };
    // cuDNN is asked of the longest documents; the shorter ones of ragged data are bounded by arithmetic.
    if (longest > 1 && shape.tokens % longest == 0) most = std::max(most, asked(shape.tokens / longest, longest));
    if (!ragged(shape, documents, longest)) continue;
    const int64_t last = bucket_length(longest);
    const int64_t of_last = asked(bucket_documents(last, shape.tokens), last);
    if (of_last == AttentionGraphs::kRefused) continue;
    for (int64_t length = kShortestBucket; length <= last; length = bucket_length(length + 1)) {
      const int64_t count = bucket_documents(length, shape.tokens);
      const int64_t of_pass = std::max(length == last ? of_last : 0, scratch_bound(shape, count, length, backward));
      most = std::max(most, room_of(shape, count * length, backward).workspace + of_pass);
    }
    for (int64_t length = 2; length < longest; ++length) {
      if (shape.tokens % length == 0)
        most = std::max(most, scratch_bound(shape, shape.tokens / length, length, backward));
    }
  }
  return most;
}

}  // namespace megatrain
