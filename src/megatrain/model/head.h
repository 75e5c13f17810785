// The head: the last phase of a model, over its last record and, if tied, the embedding's table. It runs the final
// norm, the output matmul, the loss and their backward together, one chunk of tokens at a time, so that logits never
// exist for all tokens at once.
#pragma once

#include <cstdint>

#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/layers/layer.h"
#include "megatrain/model/layers/linear.h"
#include "megatrain/model/layers/norm.h"
#include "megatrain/model/token_rows.h"

namespace megatrain {

// The final norm and, unless it is tied, the output matrix.
std::vector<TensorSpec> head_tensors(const ModelConfig& config);

class Head final : public Phase {
 public:
  // `token_rows`: the record of trained rows, or nullptr.
  Head(const ModelConfig& config, const ModelShape& shape, LayerLayout record, const LayerLayout* token_rows = nullptr);

  // Its own (0), the embedding's (1) if tied, and that of trained rows (2) if its table has some.
  std::vector<int64_t> records() const override;
  bool ends() const override { return true; }
  int64_t in_width() const override { return norm_.width(); }
  int64_t out_width() const override { return 0; }
  void forward(Ops& ops, Stream& stream, const Forward& args) const override;
  void backward(Ops& ops, Stream& stream, const Backward& args) const override;

  const LayerLayout& record() const { return record_; }
  const WeightOperand& norm() const { return norm_.weight(); }    // in its record
  const WeightOperand& table() const { return table_.weight(); }  // in its record or, if tied, the embedding's

  int64_t workspace_bytes() const override;

  // Generation: fp32 logits of some rows. The table comes in ranges of its rows, so it need not fit on the device.
  bool decodes() const override { return false; }
  int64_t decode_workspace_bytes(int64_t rows) const override;
  void decode(Ops&, Stream&, const Decode&) const override {}

  // Applies the final norm to rows index[0..rows) of x. The result stays in the workspace.
  struct DecodeNorm {
    std::byte* norm;       // (H)
    View x;                // (T, H)
    const int32_t* index;  // (rows)
    int64_t rows;
    std::byte* workspace;
  };
  void decode_norm(Ops& ops, Stream& stream, const DecodeNorm& args) const;

  // Columns [begin, begin + count) of the logits.
  struct Logits {
    std::byte* table;  // (count, H) rows [begin, begin + count) of the table
    int64_t begin, count;
    int64_t rows;
    View logits;           // (rows, V) fp32
    std::byte* workspace;  // as decode_norm() left it
  };
  void decode_logits(Ops& ops, Stream& stream, const Logits& args) const;

  const TokenRows& token_rows() const { return token_rows_; }
  // The columns of trained rows, after all others. `ids`: those of token_rows() on the device.
  struct TokenLogits {
    std::byte* weights;  // of the record of trained rows
    const int32_t* ids;
    int64_t rows;
    View logits;           // (rows, V) fp32
    std::byte* workspace;  // as decode_norm() left it
  };
  void decode_token_rows(Ops& ops, Stream& stream, const TokenLogits& args) const;

 private:
  struct Work;
  struct DecodeWork;
  void run(Ops& ops, Stream& stream, const Backward& args, bool backward) const;
  Work carve(std::byte* workspace) const;
  DecodeWork carve_decode(std::byte* workspace, int64_t rows) const;

  LayerLayout record_;
  Norm norm_;
  Linear table_;
  TokenRows token_rows_;
  Linear trained_rows_;  // absent if there are none
  bool tied_;
  float cap_;  // CrossEntropy::cap
  DType dtype_;
  int64_t chunk_;
};

// The default number of tokens in a head chunk. It gives equal chunks whose workspace is at most `bytes` or kHeadBytes,
// whichever is more. Small chunks cost time, because each adds to the gradient of the whole table.
inline constexpr int64_t kHeadBytes = int64_t{256} << 20;
int64_t default_head_chunk(const ModelConfig& config, DType dtype, int64_t tokens, int64_t bytes);

}  // namespace megatrain
