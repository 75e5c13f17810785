// A model: embedding, layers and head, built once from a configuration and a shape.
//
// Record 0 is the embedding, then come the layers' records in order, then trained rows of single tokens (token_rows.h)
// if there are some, then the head. Phases are numbered the same way: 0
// is the embedding, then come the layers' phases in order, then the head. In a dense model, a phase, its record and its
// layer have the same number.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/embedding.h"
#include "megatrain/model/head.h"
#include "megatrain/model/layers/layer.h"
#include "megatrain/model/trained/train_rules.h"

namespace megatrain {

struct Model {
  ModelConfig config;
  ModelShape shape;
  Embedding embedding;
  std::vector<Layer> layers;
  std::optional<LayerLayout> token_rows;  // the record of trained rows, before the head's
  Head head;

  std::vector<LayerLayout> layouts() const;  // of all records
  int64_t records() const;

  // A phase with the numbers of its records.
  struct NumberedPhase {
    const Phase* phase;
    std::vector<int64_t> records;
    std::vector<std::vector<int64_t>> parts;  // records of each part
    int64_t looks_up = -1;                    // number of the record that Phase::looks_up() names; -1: none
    std::vector<int64_t> whole;               // the records other than the lookup table
    int64_t reads = -1;                       // number of the phase whose shared activation it reads; -1: none
  };
  std::vector<NumberedPhase> phases() const&;  // in order of their numbers
  std::vector<NumberedPhase> phases() && = delete;

  int64_t workspace_bytes() const;  // maximum over all phases

  // The position tables: fp32, one copy on the device that all phases read.
  int64_t table_bytes() const;
  std::vector<float> make_tables() const;
};

// `stored` has the types of the weights that will be loaded. Frozen tensors that files store in the dtype that streams
// need no low bits. Empty: the weights may have any values.
Model make_model(const ModelConfig& config, const ModelShape& shape, const TrainRules& rules = {},
                 const TensorTypes& stored = {});

// The layouts of a model's records, without building the model. A layer with experts has one record with all other
// tensors, then records of g = experts_per_record consecutive experts each; the last may have fewer. 0: one record has
// all experts. Within a record the experts lie at equal distances, and all experts of a layer have the same offsets
// within the expert.
// Throws Error as freeze_tensors() and token_row_tensors() do.
std::vector<LayerLayout> model_layouts(const ModelConfig& config, DType dtype = DType::bf16,
                                       const TrainRules& rules = {}, int64_t experts_per_record = 0);

// The number of idle parameters, those that are not used for a given token; the others are called active. In each layer
// with experts, the experts that are not chosen are idle. In a model with experts the embedding's table is idle too,
// unless it is tied, because a lookup multiplies nothing. In a dense model no parameters count as idle, following
// common practice.
int64_t idle_parameters(const ModelConfig& config);

// The same model with one layer of each kind. A maximum over these layers is the maximum over all layers, whichever
// tensors are frozen. This saves time, because a model with many experts is slow to build.
ModelConfig one_layer_of_each_kind(const ModelConfig& config);

// Elements of the largest record of a layer.
int64_t largest_layer_record(const ModelConfig& config);

// Fills one fp32 tensor with initial values:
// - matrices: normal(0, init_std)
// - norms: the value that makes them multiply by one
// - vectors that say so (VectorInit): ones, logarithms of numbers between 0.01 and 16, or of 1, 2, 3, …
// - other vectors, and the padding id's row of the embedding: zeros
// - packed matrices: numbers of about that deviation that their packing holds, in fp8 under drawn_fp8_scale()
// Element i depends only on (seed, tensor name, i), so pieces may be filled in any order.
void init_tensor(const ModelConfig& config, const TensorSpec& tensor, uint64_t seed, int64_t begin, int64_t count,
                 float* out);
float drawn_fp8_scale(const ModelConfig& config);

}  // namespace megatrain
