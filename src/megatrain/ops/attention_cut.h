// How attention over documents of one length is cut into calls: the backward so that its scratch is bounded, the
// forward of long documents so that it is fast.
//
// A deterministic backward keeps a (queries, keys) bf16 matrix for every head that it works on. So it is given as many
// documents, or key heads of one document, at a time as fit kPairsBytes, and a document longer than a tile in tiles of
// its queries by tiles of its keys: those on the diagonal masked as the document is, those below it whole. Each tile
// has the whole rows' log-sum-exps and outputs; what a query or a key gets of the tiles is added in fp32, keys
// ascending for a query, queries ascending for a key.
//
// A document in a window is cut into pieces instead: ranges of `tile` tokens, queries and keys alike and masked as the
// document is, each of which begins at least `overlap` tokens before its new queries. The output's gradient of the
// queries that are not new is given as zero, so that they add zero to every gradient. A query has all its keys in one
// piece; what a key gets of the pieces is added in fp32, pieces ascending. All pieces have one length: the last ends
// with the document and has fewer new queries.
//
// The forward of a document of more than kForwardTiles tiles runs over the backward's tiles: keys and values of a head
// no longer fit the L2 cache then, and one call over the whole document has 496 TFLOP/s on an H200 at 512K tokens where
// tiles have 618. Each call has an output and log-sum-exps of its own; they are merged in fp32, keys ascending.
//
// The cut decides bits, so it follows from the shape alone.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/ops/attention.h"

namespace megatrain {

inline constexpr int64_t kAttentionTile = 16384;

// Tokens of a tile, at most: kAttentionTile, or as many as keep the pairs of the heads that share a key head below
// 2^31.
int64_t attention_tile(const AttentionShape& shape);

struct AttentionCut {
  int64_t documents;    // of a call, a divisor of all
  int64_t kv_heads;     // of a call; all of them unless a call is one document
  int64_t tile;         // tokens of a tile, but for the last, which may have fewer; the document's where it is not cut
  int64_t overlap = 0;  // of pieces, the tokens before their new queries: at least the window less one; 0: tiles

  bool tiled(int64_t length) const { return tile < length; }
};

// A document that is longer than its window stays whole where the window is longer than half a tile.
AttentionCut attention_cut(const AttentionShape& shape, int64_t documents, int64_t length);

// Whole documents unless one is longer than kForwardTiles tiles and has no window.
inline constexpr int64_t kForwardTiles = 4;
AttentionCut attention_forward_cut(const AttentionShape& shape, int64_t documents, int64_t length);

// Of a call over documents of up to `length` tokens, at most a tile, that lie anywhere in the micro-batch: few large
// calls, in which a document's own length bounds what is computed.
inline constexpr int64_t kRaggedDocuments = 256;  // of a call, at most
AttentionCut ragged_cut(const AttentionShape& shape, int64_t length);

// Of the pieces of a document, in order.
struct AttentionPiece {
  int64_t begin;      // its first token
  int64_t new_begin;  // its first new query; those from here to its end are new
};
std::vector<AttentionPiece> attention_pieces(const AttentionCut& cut, int64_t length);

// Where the scratch of a tiled backward has what the tiles add up to and what one of them gives, in bytes from its
// beginning; the library's workspace begins at `workspace`.
struct TileScratch {
  int64_t sum_q;                            // (tile, heads * D) fp32; not of pieces
  int64_t grad_out;                         // (tile, heads * D) bf16, zero where queries are not new; of pieces alone
  int64_t sum_k, sum_v;                     // (length, kv_heads * D) fp32
  int64_t partial_q, partial_k, partial_v;  // (tile, …) bf16
  int64_t stats;                            // (heads, queries of the tile) fp32 log-sum-exps
  int64_t workspace;
};
TileScratch tile_scratch(const AttentionShape& shape, const AttentionCut& cut, int64_t length);

// The same of a tiled forward.
struct ForwardScratch {
  int64_t sum;      // (tile, heads * D) fp32
  int64_t partial;  // (tile, heads * D) bf16
  int64_t stats;    // (heads, queries of the tile) fp32 log-sum-exps of one call
  int64_t lse[2];   // the same of the calls so far, before and after one is merged
  int64_t workspace;
};
ForwardScratch forward_scratch(const AttentionShape& shape, const AttentionCut& cut);

// All scratch of the backward: the pairs, each head's row sums, for grouped heads the gradients of keys and values
// before they are summed, and what tiles need.
int64_t attention_backward_bytes(const AttentionShape& shape, const AttentionCut& cut, int64_t length);
int64_t attention_backward_bytes(const AttentionShape& shape, int64_t documents, int64_t length);

int64_t attention_forward_bytes(const AttentionShape& shape, int64_t documents, int64_t length);

}  // namespace megatrain
