// The head template: final norm, output product, loss and their backward together, chunk of tokens by chunk of tokens,
// so that logits never exist for all tokens.
#pragma once

#include <cstdint>

#include "megatrain/model/config.h"
#include "megatrain/model/layers.h"
#include "megatrain/model/micro_batch.h"
#include "megatrain/ops/ops.h"

namespace megatrain {

class HeadTemplate {
 public:
  HeadTemplate(const ModelConfig& config, DType dtype, int64_t tokens, int64_t chunk);

  int64_t workspace_bytes() const { return workspace_bytes_; }

  struct Args {
    std::byte* norm;   // (H)
    std::byte* table;  // (V, H): the head's own, or the embedding's when tied
    View x;            // (T, H)
    float scale;       // 1 / trained tokens of the step
    float* loss;       // (T)
    int32_t* correct;  // (T)
    const MicroBatchView& micro_batch;
    std::byte* workspace;
    // Backward; grad empty: loss only.
    View grad;          // (T, H) out: gradient of x
    bool grad_is_used;  // somebody below is trained
    float* norm_grad;   // (H) or null: frozen
    float* table_grad;  // (V, H) or null: frozen
    bool accumulate;
  };
  void run(Ops& ops, Stream& stream, const Args& args) const;

 private:
  struct Work;
  Work carve(std::byte* workspace) const;

  int64_t vocab_, hidden_;
  float eps_;
  DType dtype_;
  int64_t tokens_, chunk_;
  int64_t workspace_bytes_ = 0;
};

// Tokens of a head chunk when the user names none: equal chunks whose workspace is at most `bytes`, or 256 MiB if that
// is more. Small chunks cost time: each adds to the table's whole gradient.
int64_t default_head_chunk(const ModelConfig& config, DType dtype, int64_t tokens, int64_t bytes);

}  // namespace megatrain
