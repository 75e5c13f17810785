// Attention cut into calls: what is cut, and that nothing is left out.
#include "megatrain/ops/attention_cut.h"

#include <gtest/gtest.h>

#include "megatrain/base/rng.h"
#include "megatrain/base/units.h"

namespace megatrain {
namespace {

AttentionShape shape_of(int64_t tokens, int64_t window = 0) {
  return {.tokens = tokens, .heads = 28, .kv_heads = 4, .head_dim = 128, .window = window, .scale = 1};
}

TEST(AttentionCut, TilesOfALongDocumentCoverItInEqualParts) {
  for (uint64_t i = 0; i < 2000; ++i) {
    const int64_t length = kAttentionTile + 1 + static_cast<int64_t>(random_below(3, 1, i, (1 << 21) - kAttentionTile));
    const AttentionCut cut = attention_cut(shape_of(length), 1, length);
    ASSERT_TRUE(cut.tiled(length)) << length;
    EXPECT_EQ(cut.documents, 1);
    EXPECT_EQ(cut.tile % 128, 0);
    EXPECT_LE(cut.tile, kAttentionTile);
    const int64_t tiles = (length + cut.tile - 1) / cut.tile;
    EXPECT_EQ(tiles, (length + kAttentionTile - 1) / kAttentionTile) << length;
    EXPECT_GT(length - (tiles - 1) * cut.tile, 0) << length;
  }
}

TEST(AttentionCut, DocumentsOfATileAndLongWindowsStayWhole) {
  EXPECT_FALSE(attention_cut(shape_of(kAttentionTile), 1, kAttentionTile).tiled(kAttentionTile));
  EXPECT_FALSE(attention_cut(shape_of(kAttentionTile, 1024), 1, kAttentionTile).tiled(kAttentionTile));
  const int64_t length = 2 * kAttentionTile;
  EXPECT_FALSE(attention_cut(shape_of(length, kAttentionTile / 2 + 2), 1, length).tiled(length));
  EXPECT_TRUE(attention_cut(shape_of(length, kAttentionTile / 2), 1, length).tiled(length));
  EXPECT_TRUE(attention_cut(shape_of(length, length), 1, length).tiled(length)) << "a window that hides nothing";
  // as many documents as fit the score matrices: 28 heads of 1024 x 1024 take 56 MiB
  EXPECT_EQ(attention_cut(shape_of(64 * 1024), 64, 1024).documents, 8);
  EXPECT_EQ(attention_cut(shape_of(64 * 1024), 64, 1024).kv_heads, 4);
  EXPECT_EQ(attention_cut(shape_of(8192), 1, 8192).kv_heads, 1) << "7 heads of 8192 x 8192 are 896 MiB";
}

TEST(AttentionCut, TheForwardOfALongDocumentHasTheBackwardsTiles) {
  const int64_t whole = kForwardTiles * kAttentionTile, longer = whole + 1;
  EXPECT_FALSE(attention_forward_cut(shape_of(whole), 1, whole).tiled(whole));
  EXPECT_EQ(attention_forward_cut(shape_of(2 * whole), 2, whole).documents, 2);
  EXPECT_FALSE(attention_forward_cut(shape_of(longer, 1024), 1, longer).tiled(longer)) << "a window";
  const AttentionCut cut = attention_forward_cut(shape_of(3 * longer), 3, longer);
  EXPECT_TRUE(cut.tiled(longer));
  EXPECT_EQ(cut.documents, 1);
  EXPECT_EQ(cut.tile, attention_cut(shape_of(longer), 1, longer).tile);
  EXPECT_GT(attention_forward_bytes(shape_of(longer), 1, longer), cut.tile * cut.kv_heads * 7 * 128 * 6);
}

TEST(AttentionCut, RaggedCallsHoldAsManyDocumentsAsFitTheirPairs) {
  EXPECT_EQ(ragged_cut(shape_of(32768), 1024).documents, 16) << "28 heads of 1024 x 1024 are 56 MiB";
  EXPECT_EQ(ragged_cut(shape_of(32768), 4096).documents, 1);
  EXPECT_EQ(ragged_cut(shape_of(32768), 4096).kv_heads, 4);
  EXPECT_EQ(ragged_cut(shape_of(32768), 8192).kv_heads, 1);
  EXPECT_EQ(ragged_cut(shape_of(1 << 20), 128).documents, kRaggedDocuments);
  EXPECT_EQ(ragged_cut(shape_of(256), 128).documents, 8) << "no more than a short micro-batch may have";
}

// Every query is new exactly once, in a piece that has all its keys; every key is new where it first occurs.
TEST(AttentionCut, PiecesOfAWindowHaveEveryPairOnce) {
  for (uint64_t i = 0; i < 2000; ++i) {
    const int64_t length = kAttentionTile + 1 + static_cast<int64_t>(random_below(3, 2, i, 1 << (4 + i % 17)));
    const int64_t window = 1 + static_cast<int64_t>(random_below(3, 3, i, kAttentionTile / 2));
    const AttentionCut cut = attention_cut(shape_of(length, window), 1, length);
    ASSERT_TRUE(cut.tiled(length)) << length << " " << window;
    EXPECT_LE(cut.tile, kAttentionTile);
    EXPECT_EQ(cut.tile % 128, 0);
    EXPECT_GE(cut.overlap, window - 1);
    int64_t next = 0;
    for (const AttentionPiece& piece : attention_pieces(cut, length)) {
      EXPECT_EQ(piece.new_begin, next);
      EXPECT_GE(piece.begin, 0);
      EXPECT_LE(piece.begin, std::max<int64_t>(next - window + 1, 0)) << "its first new query's first key";
      next = piece.begin + cut.tile;
      EXPECT_GT(next, piece.new_begin);
      ASSERT_LE(next, length);
    }
    EXPECT_EQ(next, length);
  }
}

TEST(AttentionCut, APieceOfAWindowTakesLittleScratch) {
  EXPECT_EQ(attention_cut(shape_of(1 << 20, 128), 1, 1 << 20).tile, 4096);
  EXPECT_EQ(attention_cut(shape_of(1 << 20, 1024), 1, 1 << 20).tile, 8192);
  EXPECT_LT(attention_backward_bytes(shape_of(1 << 17, 128), 1, 1 << 17), 2 * kGiB);
}

TEST(AttentionCut, PairsOfHeadsThatShareAKeyHeadStayBelowTwoToThe31) {
  for (const int64_t heads : {4, 28, 32, 64, 128}) {
    AttentionShape shape = shape_of(1 << 20);
    shape.heads = heads;
    const int64_t tile = attention_tile(shape), group = heads / 4;
    EXPECT_EQ(tile % 128, 0);
    EXPECT_LT(group * tile * tile, int64_t{1} << 31) << heads;
    EXPECT_TRUE(tile == kAttentionTile || group * (tile + 128) * (tile + 128) >= int64_t{1} << 31) << heads;
    EXPECT_LE(attention_cut(shape, 1, 1 << 20).tile, tile);
  }
}

TEST(AttentionCut, ScratchGrowsWithTheSumsAloneBeyondATile) {
  const auto bytes = [](int64_t length) { return attention_backward_bytes(shape_of(length), 1, length); };
  EXPECT_LT(bytes(kAttentionTile), 4 * kGiB);
  EXPECT_LT(bytes(512 << 10), 5 * kGiB);
  EXPECT_LT(bytes(1 << 20), 6 * kGiB);
  // fp32 sums of one head's keys and values
  EXPECT_EQ(bytes(1 << 20) - bytes(512 << 10), (int64_t{512} << 10) * 2 * 128 * 4);
}

TEST(AttentionCut, TilesHavePlacesOfTheirOwn) {
  const int64_t length = 5 * kAttentionTile - 77;
  const AttentionShape shape = shape_of(length);
  const AttentionCut cut = attention_cut(shape, 1, length);
  const TileScratch at = tile_scratch(shape, cut, length);
  const int64_t keys = cut.kv_heads * 128;
  EXPECT_GE(at.sum_k - at.sum_q, cut.tile * 7 * keys * 4);
  EXPECT_GE(at.sum_v - at.sum_k, length * keys * 4);
  EXPECT_GE(at.partial_q - at.sum_v, length * keys * 4);
  EXPECT_GE(at.partial_k - at.partial_q, cut.tile * 7 * keys * 2);
  EXPECT_GE(at.partial_v - at.partial_k, cut.tile * keys * 2);
  EXPECT_GE(at.stats - at.partial_v, cut.tile * keys * 2);
  EXPECT_GE(at.workspace - at.stats, cut.tile * 7 * cut.kv_heads * 4);
  EXPECT_EQ(at.workspace % 256, 0);
}

}  // namespace
}  // namespace megatrain
