// The cuDNN graphs that a pass of attention over documents of one length needs, given its shape and its cut.
#pragma once

#include <vector>

#include "megatrain/ops/attention.h"
#include "megatrain/ops/attention_cut.h"
#include "megatrain/ops/cuda/attention/graph.h"

namespace megatrain {

// Whole documents or, in ragged calls, documents of up to `length` tokens.
AttentionCase case_of(const AttentionShape& shape, const AttentionCut& cut, int64_t length, bool backward,
                      const AttentionStrides& strides);

// A tile of queries, perhaps the last, by a tile of keys. The results of the call are contiguous.
AttentionCase tile_case(const AttentionShape& shape, const AttentionCut& cut, int64_t length, bool backward, bool last,
                        bool diagonal, const AttentionStrides& strides);

// The backward of one piece of a document with a sliding window. The output gradient is contiguous as well.
AttentionCase piece_case(const AttentionShape& shape, const AttentionCut& cut, const AttentionStrides& strides);

// Every case of a pass.
std::vector<AttentionCase> cases_of(const AttentionShape& shape, const AttentionCut& cut, int64_t length, bool backward,
                                    const AttentionStrides& strides);

}  // namespace megatrain
