#include "megatrain/ops/cuda/attention/pass.h"

#include <algorithm>
#include <utility>

#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/device/cuda/check.h"
#include "megatrain/ops/cuda/attention/cases.h"
#include "megatrain/ops/cuda/attention/launch.h"

namespace megatrain {

namespace {

constexpr int64_t kAlign = 256;

size_t as_size(int64_t value) { return static_cast<size_t>(value); }

using Data = std::array<void*, kAttentionTensors>;

// The tensors of a call that begins at these query and key tokens and at this key head.
Data call_data(const AttentionPass& pass, const AttentionViews& views, int64_t query, int64_t key, int64_t kv_head) {
  const int64_t head = kv_head * (pass.shape.heads / pass.shape.kv_heads);
  Data data{};
  for (int tensor = 0; tensor < kStats; ++tensor) {
    if (!is_used(tensor, pass.backward)) continue;
    const View& view = views[as_size(tensor)];
    const int64_t token = is_key(tensor) ? key : query, of_head = is_key(tensor) ? kv_head : head;
    data[as_size(tensor)] =
        static_cast<std::byte*>(view.data) + (token * view.row_stride + of_head * pass.shape.head_dim) * 2;
  }
  // (documents, heads, length) for whole documents, (tokens, heads) for ragged ones
  data[kStats] = views[kStats].as<float>() +
                 (pass.ragged() ? head : (query / pass.length * pass.shape.heads + head) * pass.length);
  return data;
}

int64_t tiles_bytes(const AttentionPass& pass) {
  if (!pass.cut.tiled(pass.length)) return 0;
  return pass.backward ? tile_scratch(pass.shape, pass.cut, pass.length).workspace
                       : forward_scratch(pass.shape, pass.cut).workspace;
}

}  // namespace

AttentionPass AttentionPass::of(const AttentionShape& shape, int64_t documents, int64_t length, bool backward,
                                AttentionStrides strides) {
  strides[kStats] = 0;
  return {shape,
          documents,
          length,
          backward,
          backward ? attention_cut(shape, documents, length) : attention_forward_cut(shape, documents, length),
          strides};
}

AttentionPass AttentionPass::ragged_of(const AttentionShape& shape, int64_t length, bool backward,
                                       AttentionStrides strides) {
  strides[kStats] = shape.heads;
  const AttentionCut cut = ragged_cut(shape, length);
  return {shape, cut.documents, length, backward, cut, strides};
}

std::vector<AttentionCase> AttentionPass::cases() const { return cases_of(shape, cut, length, backward, strides); }

int64_t AttentionPass::bytes_bound() const {
  return backward ? attention_backward_bytes(shape, cut, length) : kMiB + tiles_bytes(*this);
}

int64_t AttentionPasses::bytes(const AttentionPass& pass) {
  int64_t most = kAlign;
  for (const AttentionCase& c : pass.cases()) {
    const int64_t workspace = graphs_.workspace(c);
    if (workspace == AttentionGraphs::kRefused) return workspace;
    most = std::max(most, workspace);
  }
  return most + tiles_bytes(pass);
}

void AttentionPasses::prepare(const std::vector<AttentionPass>& passes) {
  std::vector<AttentionCase> cases;
  for (const AttentionPass& pass : passes) {
    const std::vector<AttentionCase> more = pass.cases();
    cases.insert(cases.end(), more.begin(), more.end());
  }
  graphs_.prepare(cases);
}

// One document of a tiled pass and some of its key heads.
struct AttentionPasses::Part {
  const AttentionPass& pass;
  const AttentionViews& views;
  int64_t document, kv_head;
  std::byte* scratch;
  cudaStream_t stream;
  int64_t group = pass.shape.heads / pass.shape.kv_heads;
  int64_t begin = document * pass.length;  // its first token
  int64_t head = kv_head * group, heads = pass.cut.kv_heads * group;
  int64_t keys = pass.cut.kv_heads * pass.shape.head_dim, queries = group * keys;  // columns

  // Rows of the document in a tensor of the caller, restricted to the heads of this part.
  View rows(int tensor, int64_t row, int64_t count) const {
    return views[as_size(tensor)]
        .slice_rows(begin + row, count)
        .slice_cols((is_key(tensor) ? kv_head : head) * pass.shape.head_dim, is_key(tensor) ? keys : queries);
  }
  Data data(int64_t query, int64_t key) const { return call_data(pass, views, begin + query, begin + key, kv_head); }

  // The log-sum-exps of `count` queries: the document's, starting at `query`, or those of one call, where heads are
  // adjacent.
  float* document_stats(int64_t query) const {
    return views[kStats].as<float>() + (document * pass.shape.heads + head) * pass.length + query;
  }
  void copy_stats(float* to, int64_t to_stride, const float* from, int64_t from_stride, int64_t count) const {
    CUDA_CHECK(cudaMemcpy2DAsync(to, as_size(to_stride * 4), from, as_size(from_stride * 4), as_size(count * 4),
                                 as_size(heads), cudaMemcpyDeviceToDevice, stream));
  }
};

// The same with the scratch of a backward (TileScratch).
struct AttentionPasses::Gradients : Part {
  TileScratch at = tile_scratch(pass.shape, pass.cut, pass.length);
  View sum_k = matrix(scratch + at.sum_k, DType::f32, pass.length, keys);
  View sum_v = matrix(scratch + at.sum_v, DType::f32, pass.length, keys);
  View partial_q = matrix(scratch + at.partial_q, DType::bf16, pass.cut.tile, queries);
  View partial_k = matrix(scratch + at.partial_k, DType::bf16, pass.cut.tile, keys);
  View partial_v = matrix(scratch + at.partial_v, DType::bf16, pass.cut.tile, keys);

  Data data(int64_t query, int64_t key) const {
    Data all = Part::data(query, key);
    all[kGradQ] = partial_q.data;
    all[kGradK] = partial_k.data;
    all[kGradV] = partial_v.data;
    all[kStats] = scratch + at.stats;
    return all;
  }
  void* workspace() const { return scratch + at.workspace; }

  void take_stats(int64_t query, int64_t count) const {
    copy_stats(reinterpret_cast<float*>(scratch + at.stats), count, document_stats(query), pass.length, count);
  }

  // Adds the key gradients of a call, `count` rows starting at `from`, to those of the document starting at `key`.
  void add_keys(int64_t from, int64_t key, int64_t count, bool first) const {
    if (count == 0) return;
    launch_add_partial(partial_k.slice_rows(from, count), sum_k.slice_rows(key, count), first, stream);
    launch_add_partial(partial_v.slice_rows(from, count), sum_v.slice_rows(key, count), first, stream);
  }

  void round_keys() const {
    launch_round_sum(sum_k, rows(kGradK, 0, pass.length), stream);
    launch_round_sum(sum_v, rows(kGradV, 0, pass.length), stream);
  }
};

void AttentionPasses::execute(const AttentionPass& pass, const AttentionViews& views, std::byte* scratch,
                              cudaStream_t stream, int32_t* places) {
  const AttentionCut& cut = pass.cut;
  for (int64_t first = 0; first < pass.documents; first += cut.documents) {
    for (int64_t kv_head = 0; kv_head < pass.shape.kv_heads; kv_head += cut.kv_heads) {
      const Part part{pass, views, first, kv_head, scratch, stream};
      if (!cut.tiled(pass.length)) {
        const AttentionCase c = case_of(pass.shape, cut, pass.length, pass.backward, pass.strides);
        graphs_.execute(c, part.data(0, 0), scratch, stream, places);
      } else if (!pass.backward) {
        execute_forward_tiles(part);
      } else if (cut.overlap > 0) {
        execute_pieces({part});
      } else {
        execute_tiles({part});
      }
    }
  }
}

void AttentionPasses::execute_forward_tiles(const Part& part) {
  const AttentionPass& pass = part.pass;
  const AttentionCut& cut = pass.cut;
  const ForwardScratch at = forward_scratch(pass.shape, cut);
  const auto lse_of = [&](int64_t begin) { return reinterpret_cast<float*>(part.scratch + begin); };
  const int64_t tiles = ceil_div(pass.length, cut.tile);
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t query = i * cut.tile, count = std::min(cut.tile, pass.length - query);
    const View sum = matrix(part.scratch + at.sum, DType::f32, count, part.queries),
               partial = matrix(part.scratch + at.partial, DType::bf16, count, part.queries);
    float *before = lse_of(at.lse[0]), *after = lse_of(at.lse[1]);
    for (int64_t j = 0; j <= i; ++j) {
      Data data = part.data(query, j * cut.tile);
      data[kOut] = partial.data;
      data[kStats] = lse_of(at.stats);
      graphs_.execute(tile_case(pass.shape, cut, pass.length, false, i + 1 == tiles, i == j, pass.strides), data,
                      part.scratch + at.workspace, part.stream);
      launch_merge_partial({.partial = partial,
                            .partial_lse = lse_of(at.stats),
                            .sum = sum,
                            .lse = j == 0 ? nullptr : before,
                            .merged_lse = after,
                            .head_dim = pass.shape.head_dim},
                           part.stream);
      std::swap(before, after);
    }
    launch_round_sum(sum, part.rows(kOut, query, count), part.stream);
    part.copy_stats(part.document_stats(query), pass.length, before, count, count);
  }
}

void AttentionPasses::execute_tiles(const Gradients& part) {
  const AttentionPass& pass = part.pass;
  const AttentionCut& cut = pass.cut;
  const int64_t tiles = ceil_div(pass.length, cut.tile);
  const View sum_q = matrix(part.scratch + part.at.sum_q, DType::f32, cut.tile, part.queries);
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t query = i * cut.tile, count = std::min(cut.tile, pass.length - query);
    part.take_stats(query, count);
    for (int64_t j = 0; j <= i; ++j) {
      const AttentionCase c = tile_case(pass.shape, cut, pass.length, true, i + 1 == tiles, i == j, pass.strides);
      graphs_.execute(c, part.data(query, j * cut.tile), part.workspace(), part.stream);
      launch_add_partial(part.partial_q.slice_rows(0, count), sum_q.slice_rows(0, count), j == 0, part.stream);
      part.add_keys(0, j * cut.tile, c.keys, i == j);
    }
    launch_round_sum(sum_q.slice_rows(0, count), part.rows(kGradQ, query, count), part.stream);
  }
  part.round_keys();
}

void AttentionPasses::execute_pieces(const Gradients& part) {
  const AttentionPass& pass = part.pass;
  const int64_t tile = pass.cut.tile, row_bytes = part.queries * 2;
  const AttentionCase c = piece_case(pass.shape, pass.cut, pass.strides);
  std::byte* grad_out = part.scratch + part.at.grad_out;
  const auto copy_rows = [&](void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t rows) {
    CUDA_CHECK(cudaMemcpy2DAsync(to, as_size(to_stride * 2), from, as_size(from_stride * 2), as_size(row_bytes),
                                 as_size(rows), cudaMemcpyDeviceToDevice, part.stream));
  };
  for (const AttentionPiece& piece : attention_pieces(pass.cut, pass.length)) {
    const int64_t old = piece.new_begin - piece.begin, fresh = tile - old;
    const View given = part.rows(kGradOut, piece.new_begin, fresh), wanted = part.rows(kGradQ, piece.new_begin, fresh);
    part.take_stats(piece.begin, tile);
    CUDA_CHECK(cudaMemsetAsync(grad_out, 0, as_size(old * row_bytes), part.stream));
    copy_rows(grad_out + old * row_bytes, part.queries, given.data, given.row_stride, fresh);
    Data data = part.data(piece.begin, piece.begin);
    data[kGradOut] = grad_out;
    graphs_.execute(c, data, part.workspace(), part.stream);
    copy_rows(wanted.data, wanted.row_stride, part.partial_q.slice_rows(old, fresh).data, part.queries, fresh);
    part.add_keys(0, piece.begin, old, false);
    part.add_keys(old, piece.new_begin, fresh, true);
  }
  part.round_keys();
}

}  // namespace megatrain
