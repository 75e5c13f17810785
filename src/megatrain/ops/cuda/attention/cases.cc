#include "megatrain/ops/cuda/attention/cases.h"

#include "megatrain/base/math.h"

namespace megatrain {

namespace {

// The results of a call are contiguous: its output, or the gradients of its queries, keys and values.
void lay_apart(AttentionCase& c) {
  if (!c.backward) {
    c.strides[kOut] = c.heads * c.head_dim;
    return;
  }
  c.strides[kGradQ] = c.heads * c.head_dim;
  c.strides[kGradK] = c.strides[kGradV] = c.kv_heads * c.head_dim;
}

}  // namespace

AttentionCase case_of(const AttentionShape& shape, const AttentionCut& cut, int64_t length, bool backward,
                      const AttentionStrides& strides) {
  AttentionCase c{.backward = backward,
                  .documents = cut.documents,
                  .length = length,
                  .keys = length,
                  .masked = true,
                  .heads = cut.kv_heads * (shape.heads / shape.kv_heads),
                  .kv_heads = cut.kv_heads,
                  .head_dim = shape.head_dim,
                  .window = shape.window > 0 && shape.window < length ? shape.window : 0,
                  .scale = shape.scale,
                  .strides = strides,
                  .ragged = strides[kStats] > 0};
  for (int tensor = 0; tensor < kStats; ++tensor) {
    if (!is_used(tensor, backward)) c.strides[static_cast<size_t>(tensor)] = 0;
  }
  return c;
}

AttentionCase tile_case(const AttentionShape& shape, const AttentionCut& cut, int64_t length, bool backward, bool last,
                        bool diagonal, const AttentionStrides& strides) {
  AttentionCase c = case_of(shape, cut, length, backward, strides);
  c.length = last ? length - (ceil_div(length, cut.tile) - 1) * cut.tile : cut.tile;
  c.keys = diagonal ? c.length : cut.tile;
  c.masked = diagonal;
  lay_apart(c);
  return c;
}

AttentionCase piece_case(const AttentionShape& shape, const AttentionCut& cut, const AttentionStrides& strides) {
  AttentionCase c = case_of(shape, cut, cut.tile, true, strides);
  lay_apart(c);
  c.strides[kGradOut] = c.strides[kGradQ];
  return c;
}

std::vector<AttentionCase> cases_of(const AttentionShape& shape, const AttentionCut& cut, int64_t length, bool backward,
                                    const AttentionStrides& strides) {
  if (!cut.tiled(length)) return {case_of(shape, cut, length, backward, strides)};
  if (cut.overlap > 0) return {piece_case(shape, cut, strides)};
  std::vector<AttentionCase> cases;
  for (const bool last : {false, true}) {
    for (const bool diagonal : {false, true})
      cases.push_back(tile_case(shape, cut, length, backward, last, diagonal, strides));
  }
  return cases;
}

}  // namespace megatrain
