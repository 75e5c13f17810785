// Causal grouped-query attention of new tokens against a cache, for generation.
//
// A cache has the keys (or values) of every earlier token of `sequences` sequences, `context` rows each: row sequence *
// context + position. A call first writes the new tokens' keys and values to their rows. Then each new token sees the
// positions up to its own; if window > 0, no more than shape.window of them (itself included). So one sequence may have
// several new tokens, in order of position.
#pragma once

#include "megatrain/ops/attention.h"

namespace megatrain {

struct CachedAttention {
  AttentionShape shape;  // tokens: T new ones of all sequences
  int64_t context;
  const int32_t* sequences;  // (T) the sequence of each new token; tokens of one sequence are adjacent
  const int32_t* positions;  // (T) ascending by one within a sequence
  View q;                    // (T, heads * D), strided rows
  View k, v;                 // (T, kv_heads * D), strided rows; empty: the caches already have them
  View sinks;                // (heads) or empty, as in AttentionForward
  View k_cache;              // (sequences * context, kv_heads * D) same dtype as k
  View v_cache;              // (sequences * context, kv_heads * D)
  View out;                  // (T, heads * D)
};

}  // namespace megatrain
