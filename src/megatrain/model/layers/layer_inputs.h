// What a token gives to each layer, beside its embedding (Gemma 4 E2B and E4B).
//
//   p = norm(project(x)) + scale table[id]          x: (T, H) embeddings   p: (T, L P), P elements for each layer
//   y = factor (x + norm(out(gelu(gate(x)) p_l)))   x, y: (T, H) in layer l   p_l: (T, P)
//
// LayerInputs makes p once, as an activation that all layers share, and hands x on. LayerInput adds to the residual
// stream behind a layer's block. transformers multiplies p by 2^-1/2; here `out` does.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "megatrain/model/layers/layer.h"
#include "megatrain/model/layers/linear.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/layers/norm.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

struct LayerInputOperand {
  enum : int {
    project = BlockOperand::first_free,  // (L P, H)
    project_norm,                        // (P)
    gate,                                // (P, H)
    out,                                 // (H, P)
    out_norm,                            // (H)
    factor,                              // (1)
  };
};

// Which of a layer's records a phase works on.
struct LayerInputRecords {
  int64_t weights;
  std::optional<int64_t> adapters;
  std::optional<int64_t> table;  // of LayerInputs, looked up
};

class LayerInputs final : public Phase {
 public:
  LayerInputs(const ModelConfig& config, const ModelShape& shape, const LinearTensors& from,
              const LayerInputRecords& records);

  std::vector<int64_t> records() const override;
  std::optional<int64_t> looks_up() const override { return at_.table; }
  int64_t in_width() const override { return project_.in_width(); }
  int64_t out_width() const override { return project_.in_width(); }
  int64_t shared_width() const override { return project_.out_width(); }
  int64_t workspace_bytes() const override;
  void forward(Ops& ops, Stream& stream, const Forward& args) const override;
  void backward(Ops& ops, Stream& stream, const Backward& args) const override;

  // The cache has p of the new tokens alone.
  int64_t cache_bytes(int64_t sequences, int64_t context) const override;
  int64_t decode_workspace_bytes(int64_t tokens) const override;
  void decode(Ops& ops, Stream& stream, const Decode& args) const override;

 private:
  struct Work;
  Work carve(std::byte* workspace, int64_t tokens) const;

  ModelShape shape_;
  LayerInputRecords at_;
  LayerLayout adapters_;  // empty without
  Linear project_;
  Norm norm_;
  float scale_;
};

class LayerInput final : public Phase {
 public:
  LayerInput(const ModelConfig& config, const ModelShape& shape, int64_t layer, const LinearTensors& from,
             const LayerInputRecords& records);

  std::vector<int64_t> records() const override;
  int64_t in_width() const override { return gate_.in_width(); }
  int64_t out_width() const override { return gate_.in_width(); }
  std::optional<SharedRead> reads_shared() const override { return SharedRead{.layer = 0, .phase = 0, .width = all_}; }
  int64_t workspace_bytes() const override;
  void forward(Ops& ops, Stream& stream, const Forward& args) const override;
  void backward(Ops& ops, Stream& stream, const Backward& args) const override;
  int64_t decode_workspace_bytes(int64_t tokens) const override;
  void decode(Ops& ops, Stream& stream, const Decode& args) const override;

 private:
  struct Work;
  Work carve(std::byte* workspace, int64_t tokens) const;
  int64_t width() const { return gate_.out_width(); }
  void make(const Binding& at, const View& x, const View& inputs, const Work& work) const;

  ModelShape shape_;
  LayerInputRecords at_;
  LayerLayout adapters_;
  int64_t first_, all_;  // column of this layer in p, and columns of p
  Activation activation_;
  Linear gate_, out_;
  Norm norm_;
  WeightOperand factor_;
};

}  // namespace megatrain
