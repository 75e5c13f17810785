#include "megatrain/ops/attention_cut.h"

#include <algorithm>

#include "megatrain/base/math.h"
#include "megatrain/base/units.h"

namespace megatrain {

namespace {

constexpr int64_t kPairsBytes = 512 * kMiB, kRaggedPairsBytes = kGiB;

// A piece recomputes its overlap, so it should be several times as long. Short pieces leave the GPU idle.
constexpr int64_t kPieceOverlaps = 8, kShortestPiece = 4096;

int64_t piece_overlap(const AttentionShape& shape) { return round_up(std::max<int64_t>(shape.window - 1, 1), 128); }

int64_t pairs_bytes(int64_t length) { return round_up(length, 64) * round_up(length, 128) * 2; }

// The number of key heads of one document whose pairs fit in `bytes`: a divisor of kv_heads, at least one.
int64_t kv_heads_within(const AttentionShape& shape, int64_t length, int64_t bytes) {
  const int64_t heads = std::max<int64_t>(bytes / (pairs_bytes(length) * (shape.heads / shape.kv_heads)), 1);
  int64_t kv_heads = std::min(heads, shape.kv_heads);
  while (shape.kv_heads % kv_heads != 0) --kv_heads;
  return kv_heads;
}

// Allocates consecutive offsets in scratch.
class Taker {
 public:
  int64_t take(int64_t elements, int64_t bytes_each) {
    const int64_t begin = at_;
    at_ += round_up(elements * bytes_each, 256);
    return begin;
  }
  int64_t end() const { return at_; }

 private:
  int64_t at_ = 0;
};

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
  if (!cut.tiled(length)) {
    const int64_t room = std::max<int64_t>(kPairsBytes / (pairs_bytes(cut.tile) * shape.heads), 1);
    for (int64_t n = 1; n <= std::min(room, documents); ++n) {
      if (documents % n == 0) cut.documents = n;
    }
  }
  if (cut.documents == 1) cut.kv_heads = kv_heads_within(shape, cut.tile, kPairsBytes);
  return cut;
}

AttentionCut attention_forward_cut(const AttentionShape& shape, int64_t documents, int64_t length) {
  const bool window = shape.window > 0 && shape.window < length;
  if (length > kForwardTiles * attention_tile(shape) && !window) return attention_cut(shape, 1, length);
  return {.documents = documents, .kv_heads = shape.kv_heads, .tile = length};
}

AttentionCut ragged_cut(const AttentionShape& shape, int64_t length) {
  const int64_t within = std::max<int64_t>(kRaggedPairsBytes / (pairs_bytes(length) * shape.heads), 1),
                of_tokens = std::max<int64_t>(4 * power_of_two_above(shape.tokens) / length, 1);
  const int64_t documents = power_of_two_below(std::min({within, of_tokens, kRaggedDocuments}));
  return {.documents = documents,
          .kv_heads = documents == 1 ? kv_heads_within(shape, length, kRaggedPairsBytes) : shape.kv_heads,
          .tile = length};
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
  Taker room;
  TileScratch scratch{};
  (cut.overlap == 0 ? scratch.sum_q : scratch.grad_out) = room.take(cut.tile * queries, cut.overlap == 0 ? 4 : 2);
  scratch.sum_k = room.take(length * keys, 4);
  scratch.sum_v = room.take(length * keys, 4);
  scratch.partial_q = room.take(cut.tile * queries, 2);
  scratch.partial_k = room.take(cut.tile * keys, 2);
  scratch.partial_v = room.take(cut.tile * keys, 2);
  scratch.stats = room.take(cut.tile * cut.kv_heads * (shape.heads / shape.kv_heads), 4);
  scratch.workspace = room.end();
  return scratch;
}

ForwardScratch forward_scratch(const AttentionShape& shape, const AttentionCut& cut) {
  const int64_t heads = cut.kv_heads * (shape.heads / shape.kv_heads), columns = heads * shape.head_dim;
  Taker room;
  ForwardScratch scratch{};
  scratch.sum = room.take(cut.tile * columns, 4);
  scratch.partial = room.take(cut.tile * columns, 2);
  scratch.stats = room.take(cut.tile * heads, 4);
  for (int64_t& lse : scratch.lse) lse = room.take(cut.tile * heads, 4);
  scratch.workspace = room.end();
  return scratch;
}

int64_t attention_backward_bytes(const AttentionShape& shape, const AttentionCut& cut, int64_t length) {
  const int64_t heads = cut.documents * cut.kv_heads * (shape.heads / shape.kv_heads);
  const int64_t workspace = heads * (pairs_bytes(cut.tile) + cut.tile * (4 * shape.head_dim + 4)) + kMiB;
  return workspace + (cut.tiled(length) ? tile_scratch(shape, cut, length).workspace : 0);
}

int64_t attention_backward_bytes(const AttentionShape& shape, int64_t documents, int64_t length) {
  return attention_backward_bytes(shape, attention_cut(shape, documents, length), length);
}

int64_t attention_forward_bytes(const AttentionShape& shape, int64_t documents, int64_t length) {
  const AttentionCut cut = attention_forward_cut(shape, documents, length);
  return kMiB + (cut.tiled(length) ? forward_scratch(shape, cut).workspace : 0);
}

}  // namespace megatrain
