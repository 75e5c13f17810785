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
  explicit Embedding(LayerLayout record) : record_(std::move(record)) {}

  const LayerLayout& record() const { return record_; }
  const TensorSpec& table() const { return record_.tensors.front(); }

  void forward(Ops& ops, Stream& stream, const EmbeddingForward& args) const { ops.embedding_forward(stream, args); }
  void backward(Ops& ops, Stream& stream, const EmbeddingBackward& args) const { ops.embedding_backward(stream, args); }

 private:
  LayerLayout record_;
};

}  // namespace megatrain
