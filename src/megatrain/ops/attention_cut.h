// How attention over documents of one length is split into calls: the backward to bound its scratch, the forward of
// long documents for speed.
//
// A deterministic backward keeps a (queries, keys) bf16 matrix for every head that it works on. So one call takes as
// many documents, or as many key heads of one document, as fit in kPairsBytes. A document longer than a tile is split
// into tiles of queries by tiles of keys. Tiles on the diagonal are masked like the document; tiles below it are
// unmasked. Each tile reads the log-sum-exps and outputs of the whole rows. Partial gradients are summed in fp32: for a
// query in ascending order of keys, for a key in ascending order of queries.
//
// A document with a sliding window is split into pieces instead: ranges of `tile` tokens that are queries and keys
// alike, masked like the document. Each piece begins at least `overlap` tokens before its new queries. The output
// gradient of the other queries is set to zero, so that they add zero to every gradient. A new query has all its keys
// in one piece. The gradients of a key are summed in fp32, pieces ascending. All pieces have the same length: the last
// one ends with the document and has fewer new queries.
//
// The forward of a document of more than kForwardTiles tiles uses the backward's tiles, because the keys and values of
// a head no longer fit in the L2 cache. On an H200 at 512K tokens, one call over the whole document reaches 496
// TFLOP/s, tiles 618. Each call has its own output and log-sum-exps. They are merged in fp32, keys ascending.
//
// The split affects bits, so it depends only on the shape.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/ops/attention.h"

namespace megatrain {

inline constexpr int64_t kAttentionTile = 16384;
// cuDNN takes no longer heads, and only its calls are cut.
inline constexpr int64_t kLongestCutHead = 256;

// Maximum tokens of a tile: kAttentionTile, or fewer so that the pairs of all heads that share a key head are below
// 2^31.
int64_t attention_tile(const AttentionShape& shape);

struct AttentionCut {
  int64_t documents;    // documents per call, a divisor of their number
  int64_t kv_heads;     // key heads per call; all of them unless a call is one document
  int64_t tile;         // tokens per tile (the last may have fewer); the document's length if it is not split
  int64_t overlap = 0;  // pieces: tokens before the new queries, at least window - 1; 0: tiles

  bool tiled(int64_t length) const { return tile < length; }
};

// A document with a sliding window is not split if the window is longer than half a tile.
AttentionCut attention_cut(const AttentionShape& shape, int64_t documents, int64_t length);

// Documents are not split unless they are longer than kForwardTiles tiles and have no window.
inline constexpr int64_t kForwardTiles = 4;
AttentionCut attention_forward_cut(const AttentionShape& shape, int64_t documents, int64_t length);

// For a ragged call: documents of up to `length` tokens, at most a tile, anywhere in the micro-batch. Such calls are
// few and large, and compute no more than each document's own length.
inline constexpr int64_t kRaggedDocuments = 256;  // maximum per call
AttentionCut ragged_cut(const AttentionShape& shape, int64_t length);

// The pieces of a document, in order.
struct AttentionPiece {
  int64_t begin;      // its first token
  int64_t new_begin;  // its first new query; all queries from here to its end are new
};
std::vector<AttentionPiece> attention_pieces(const AttentionCut& cut, int64_t length);

// Layout of the scratch of a tiled backward: the sums over the tiles and the results of one tile, as byte offsets. The
// library's workspace begins at `workspace`.
struct TileScratch {
  int64_t sum_q;                            // (tile, heads * D) fp32; tiles only
  int64_t grad_out;                         // (tile, heads * D) bf16, zero for queries that are not new; pieces only
  int64_t sum_k, sum_v;                     // (length, kv_heads * D) fp32
  int64_t partial_q, partial_k, partial_v;  // (tile, …) bf16
  int64_t stats;                            // (heads, queries of the tile) fp32 log-sum-exps
  int64_t workspace;
};
TileScratch tile_scratch(const AttentionShape& shape, const AttentionCut& cut, int64_t length);

// The same for a tiled forward.
struct ForwardScratch {
  int64_t sum;      // (tile, heads * D) fp32
  int64_t partial;  // (tile, heads * D) bf16
  int64_t stats;    // (heads, queries of the tile) fp32 log-sum-exps of one call
  int64_t lse[2];   // the same for all calls so far, before and after merging one
  int64_t workspace;
};
ForwardScratch forward_scratch(const AttentionShape& shape, const AttentionCut& cut);

// All scratch of the backward: the pairs, each head's row sums, for grouped heads the gradients of keys and values
// before they are summed, and the scratch of tiles.
int64_t attention_backward_bytes(const AttentionShape& shape, const AttentionCut& cut, int64_t length);
int64_t attention_backward_bytes(const AttentionShape& shape, int64_t documents, int64_t length);

int64_t attention_forward_bytes(const AttentionShape& shape, int64_t documents, int64_t length);

}  // namespace megatrain
