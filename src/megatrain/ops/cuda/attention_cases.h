// The graphs that a pass of attention over documents of one length needs, from its shape and its cut.
#pragma once

#include <vector>

#include "megatrain/ops/attention.h"
#include "megatrain/ops/attention_cut.h"
#include "megatrain/ops/cuda/attention_graph.h"

namespace megatrain {

// Of whole documents, or in ragged calls of documents of up to a length.
AttentionCase case_of(const AttentionShape& shape, const AttentionCut& cut, int64_t length, bool backward,
                      const AttentionStrides& strides);

// Of a tile of queries, perhaps the last, by one of keys. What the call gives lies by itself.
AttentionCase tile_case(const AttentionShape& shape, const AttentionCut& cut, int64_t length, bool backward, bool last,
                        bool diagonal, const AttentionStrides& strides);

// Of the backward of a piece of a document in a window; the output's gradient lies by itself too.
AttentionCase piece_case(const AttentionShape& shape, const AttentionCut& cut, const AttentionStrides& strides);

// Every case of a pass.
std::vector<AttentionCase> cases_of(const AttentionShape& shape, const AttentionCut& cut, int64_t length, bool backward,
                                    const AttentionStrides& strides);

}  // namespace megatrain
