#include "megatrain/ops/attention_cut.h"

#include <algorithm>

#include "megatrain/base/math.h"
#include "megatrain/base/units.h"

namespace megatrain {

namespace {

constexpr int64_t kPairsBytes = 512 * kMiB;

// A piece repeats its overlap, so it has several times as many tokens; short ones leave the GPU idle.
constexpr int64_t kPieceOverlaps = 8, kShortestPiece = 4096;

int64_t piece_overlap(const AttentionShape& shape) { return round_up(std::max<int64_t>(shape.window - 1, 1), 128); }

int64_t pairs_bytes(int64_t length) { return round_up(length, 64) * round_up(length, 128) * 2; }

}  // namespace

int64_t attention_tile(const AttentionShape& shape) {
  constexpr int64_t kPairs = int64_t{1} << 31;
  const int64_t group = shape.heads / shape.kv_heads;
  int64_t tile = kAttentionTile;
  while (tile > 128 && group * tile * tile >= kPairs) tile -= 128;
  return tile;
}

AttentionCut attention_cut(const AttentionShape& shape, int64_t documents, int64_t length) {
  AttentionCut cut{.documents = 1, .kv_heads = shape.kv_heads, .tile = length};
  const bool window = shape.window > 0 && shape.window < length;
  const int64_t most = attention_tile(shape);
  if (length > most && !window) cut.tile = round_up(ceil_div(length, ceil_div(length, most)), 128);
  if (length > most && window && 2 * piece_overlap(shape) <= most) {
    cut.overlap = piece_overlap(shape);
    cut.tile = std::min(std::max(kPieceOverlaps * cut.overlap, kShortestPiece), most);
  }
  const int64_t head = pairs_bytes(cut.tile), group = shape.heads / shape.kv_heads;
  if (!cut.tiled(length)) {
    const int64_t room = std::max<int64_t>(kPairsBytes / (head * shape.heads), 1);
    for (int64_t n = 1; n <= std::min(room, documents); ++n) {
      if (documents % n == 0) cut.documents = n;
    }
  }
  if (cut.documents == 1) {
    const int64_t heads = std::max<int64_t>(kPairsBytes / (head * group), 1);
    while (cut.kv_heads > 1 && (cut.kv_heads > heads || shape.kv_heads % cut.kv_heads != 0)) --cut.kv_heads;
  }
  return cut;
}

std::vector<AttentionPiece> attention_pieces(const AttentionCut& cut, int64_t length) {
  std::vector<AttentionPiece> pieces;
  for (int64_t next = 0; next < length; next = pieces.back().begin + cut.tile) {
    const int64_t begin = std::min(std::max<int64_t>(next - cut.overlap, 0), length - cut.tile);
    pieces.push_back({.begin = begin, .new_begin = next});
  }
  return pieces;
}

TileScratch tile_scratch(const AttentionShape& shape, const AttentionCut& cut, int64_t length) {
  const int64_t keys = cut.kv_heads * shape.head_dim, queries = shape.heads / shape.kv_heads * keys;
  int64_t at = 0;
  const auto take = [&](int64_t elements, int64_t bytes_each) {
    const int64_t begin = at;
    at += round_up(elements * bytes_each, 256);
    return begin;
  };
  TileScratch scratch{};
  (cut.overlap == 0 ? scratch.sum_q : scratch.grad_out) = take(cut.tile * queries, cut.overlap == 0 ? 4 : 2);
  scratch.sum_k = take(length * keys, 4);
  scratch.sum_v = take(length * keys, 4);
  scratch.partial_q = take(cut.tile * queries, 2);
  scratch.partial_k = take(cut.tile * keys, 2);
  scratch.partial_v = take(cut.tile * keys, 2);
  scratch.stats = take(cut.tile * cut.kv_heads * (shape.heads / shape.kv_heads), 4);
  scratch.workspace = at;
  return scratch;
}

int64_t attention_backward_bytes(const AttentionShape& shape, int64_t documents, int64_t length) {
  const AttentionCut cut = attention_cut(shape, documents, length);
  const int64_t heads = cut.documents * cut.kv_heads * (shape.heads / shape.kv_heads);
  const int64_t workspace = heads * (pairs_bytes(cut.tile) + cut.tile * (4 * shape.head_dim + 4)) + kMiB;
  return workspace + (cut.tiled(length) ? tile_scratch(shape, cut, length).workspace : 0);
}

}  // namespace megatrain
