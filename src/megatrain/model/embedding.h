// The embedding: phase 0 of a model, over record 0. Rows of its table are looked up; the table itself never streams.
#pragma once

#include <utility>

#include "megatrain/model/config.h"
#include "megatrain/model/layer.h"

namespace megatrain {

inline std::vector<TensorSpec> embedding_tensors(const ModelConfig& config) {
  return {{.name = "model.embed_tokens.weight",
           .rows = config.vocab,
           .cols = config.hidden,
           .role = TensorRole::embedding}};
}

class Embedding {
 public:
  Embedding(const ModelConfig& config, const ModelShape& shape, LayerLayout record)
      : record_(std::move(record)), scale_(embedding_scale(config.embedding_scale, shape.dtype)) {}

  const LayerLayout& record() const { return record_; }
  const TensorSpec& table() const { return record_.tensors.front(); }

  float scale() const { return scale_; }

  // The scale of the args is the embedding's own.
  void forward(Ops& ops, Stream& stream, EmbeddingForward args) const {
    args.scale = scale_;
    ops.embedding_forward(stream, args);
  }
  void backward(Ops& ops, Stream& stream, EmbeddingBackward args) const {
    args.scale = scale_;
    ops.embedding_backward(stream, args);
  }

 private:
  LayerLayout record_;
  float scale_;
};

}  // namespace megatrain
