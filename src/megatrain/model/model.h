// A model: embedding, layers, head, built once from a configuration and a shape.
//
// Records are numbered 0 the embedding, then the layers' records in order, then the head. Phases are numbered alike: 0
// the embedding, then the layers' phases in order, then the head. In a dense model a phase, its record and its layer
// have one number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatrain/model/config.h"
#include "megatrain/model/embedding.h"
#include "megatrain/model/freeze.h"
#include "megatrain/model/head.h"
#include "megatrain/model/layer.h"

namespace megatrain {

struct Model {
  ModelConfig config;
  ModelShape shape;
  Embedding embedding;
  std::vector<Layer> layers;
  Head head;

  std::vector<LayerLayout> layouts() const;  // of all records
  int64_t records() const;

  // A phase with the numbers of its records.
  struct NumberedPhase {
    const Phase* phase;
    std::vector<int64_t> records;
    std::vector<std::vector<int64_t>> parts;  // the records of each
    int64_t looks_up = -1;                    // Phase::looks_up(), by number; -1: none
    std::vector<int64_t> whole;               // the records without that one
    int64_t reads = -1;                       // the phase whose shared activation it reads, by number; -1: none
  };
  std::vector<NumberedPhase> phases() const&;  // by number
  std::vector<NumberedPhase> phases() && = delete;

  int64_t workspace_bytes() const;  // the most of any phase

  // What phases know of positions: fp32, read by all of them from one place on the device.
  int64_t table_bytes() const;
  std::vector<float> make_tables() const;
};

// `stored` has the types of the weights that it will be filled with: frozen tensors in the type that streams then have
// no low bits. Empty: any values.
Model make_model(const ModelConfig& config, const ModelShape& shape, const FreezeRules& rules = {},
                 const TensorTypes& stored = {});

// The layouts of a model's records, without the model. A layer with experts has a record of all else, then records of
// g = experts_per_record consecutive experts each, the last of what is left; 0: of all. Every expert of a layer has the
// same offsets from its first tensor on, and lies at the same distance from the one before it in its record.
std::vector<LayerLayout> model_layouts(const ModelConfig& config, DType dtype = DType::bf16,
                                       const FreezeRules& rules = {}, int64_t experts_per_record = 0);

// Parameters that do not work on a token: of each layer with experts those of the ones that it does not choose, and in
// a model with experts the embedding's table unless it is the head's too, as a row is looked up and multiplies nothing.
// The others are called active. In a dense model none are idle, as the field counts.
int64_t idle_parameters(const ModelConfig& config);

// The same model with one layer of each kind. What is the largest of all layers, whatever is frozen, is the largest of
// these, and a model with many experts takes a while to make.
ModelConfig one_layer_of_each_kind(const ModelConfig& config);

// Elements of the largest record of a layer.
int64_t largest_layer_record(const ModelConfig& config);

// Fills one fp32 tensor as the families initialise: normal(0, init_std) for matrices, what makes a norm multiply by one
// for norms, zeros for biases and for the padding id's row of the embedding.
// Element i depends on (seed, tensor name, i) alone, so pieces may be filled in any order.
void init_tensor(const ModelConfig& config, const TensorSpec& tensor, uint64_t seed, int64_t begin, int64_t count,
                 float* out);

}  // namespace megatrain
