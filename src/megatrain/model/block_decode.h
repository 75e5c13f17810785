// The dense block's forward for generation: new tokens of several sequences, with the keys and values of the tokens
// before them in a cache. The maths is BlockTemplate's, op for op, in as many tokens as there are new ones.
#pragma once

#include <cstdint>

#include "megatrain/model/block_weights.h"
#include "megatrain/model/config.h"
#include "megatrain/model/layers.h"
#include "megatrain/model/rope_table.h"
#include "megatrain/ops/ops.h"

namespace megatrain {

// T new tokens, of each sequence side by side and in order; device memory.
struct NewTokens {
  int64_t tokens = 0;                  // T
  const int32_t* sequences = nullptr;  // (T)
  const int32_t* positions = nullptr;  // (T)
};

// Keys and values of one block: (sequences * context, kv_dim) each.
struct BlockCache {
  View k, v;
  int64_t context = 0;
};

class BlockDecode {
 public:
  // `tokens` is the most of one call.
  BlockDecode(const ModelConfig& config, DType dtype, int64_t tokens, RopeTable rope);

  int64_t workspace_bytes() const { return workspace_bytes_; }

  struct Args {
    int64_t block;       // 0-based: chooses the sliding window
    std::byte* weights;  // slab
    View x;              // (T, H) in: the block's input; out: its output
    NewTokens tokens;
    BlockCache cache;  // the new tokens' rows are written, those before them read
    std::byte* workspace;
  };
  void run(Ops& ops, Stream& stream, const Args& args) const;

 private:
  struct Work;
  Work carve(std::byte* workspace, int64_t tokens) const;
  void attend(Ops& ops, Stream& stream, const BlockWeights& weights, const Args& args, const Work& work) const;

  ModelConfig config_;
  BlockOffsets at_;
  DType dtype_;
  RopeTable rope_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace megatrain
