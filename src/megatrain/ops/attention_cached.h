// Causal grouped-query attention of new tokens against a cache: what generation needs of attention.
//
// A cache holds the keys (or values) of every earlier token of `sequences` sequences, `context` rows each: row
// sequence * context + position. A call first writes the new tokens' keys and values to their rows, then lets each new
// token see the positions up to its own, no more than shape.window of them (itself included) when window > 0. So the
// new tokens of one sequence may be several, in order of position.
#pragma once

#include "megatrain/ops/attention.h"

namespace megatrain {

struct CachedAttention {
  AttentionShape shape;  // tokens: T new ones, of all sequences together
  int64_t context;
  const int32_t* sequences;  // (T) the sequence of each new token; tokens of one sequence lie side by side
  const int32_t* positions;  // (T) ascending by one within a sequence
  View q;                    // (T, heads * D), strided rows
  View k;                    // (T, kv_heads * D), strided rows
  View v;                    // (T, kv_heads * D), strided rows
  View sinks;                // (heads) or empty, as in AttentionForward
  View k_cache;              // (sequences * context, kv_heads * D) same dtype as k
  View v_cache;              // (sequences * context, kv_heads * D)
  View out;                  // (T, heads * D)
};

}  // namespace megatrain
