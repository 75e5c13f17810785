// Runs the whole model over the new tokens of several sequences, with a KV cache on the device, so work is linear in
// the new tokens. Weights are brought to the device by device_weights.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "megatrain/generate/device_weights.h"
#include "megatrain/generate/lent_memory.h"
#include "megatrain/model/model.h"
#include "megatrain/model/trained/adapter.h"
#include "megatrain/ops/ops.h"
#include "megatrain/store/record.h"

namespace megatrain {

// Adapters that a pass may use over a base that has none itself.
struct ChoosableAdapter {
  AdapterRules rules;
  const std::vector<LayerRecord>* records = nullptr;  // of the adapters alone, in the order of the layers
};

struct GeneratorOptions {
  int64_t max_context = 0;     // tokens per sequence, prompt and answer together
  int64_t max_batch = 1;       // concurrent sequences
  int64_t chunk_tokens = 512;  // new tokens per pass; long prompts take several passes
  int64_t memory_bytes = 0;    // device memory that may be used; includes the ops' scratch unless memory is lent
  bool in_place = true;        // the CPU device computes on host memory directly; false: copies as on a GPU
  // Device memory to use first; it must outlive the generator. If it has GenerationNeed::bytes nothing else is needed;
  // if it has less, it is not used. The ops then already have their scratch.
  std::span<std::byte> lent = {};
  AdapterRules adapter = {};  // the records have these adapters
  // With these the records have none. They stay on the device; pass by pass one of them is used, or none.
  std::vector<ChoosableAdapter> choices = {};
  // Feeds may want the logits of every token. These come in chunks of so many bytes (more if that is less than one row
  // for each sequence). 0: feeds want at most those of their last token.
  int64_t logits_bytes = 0;
};

// What generating needs at most, when it is not known where the weights will be.
struct GenerationNeed {
  int64_t bytes = 0;  // device memory without the ops' scratch
  OpsShape ops;       // determines that scratch
};

class CachedForward {
 public:
  // `records` (model_layouts) must outlive this object and not change: no lane may be working on them, and no embedding
  // row may have deferred updates (Trainer::drain()). Throws Error(cannot_fit).
  CachedForward(Device& device, Ops& ops, const ModelConfig& model, const std::vector<LayerRecord>& records,
                const GeneratorOptions& options);
  // The same with a model that was built for the options: tokens of a pass, positions.
  CachedForward(Device& device, Ops& ops, Model model, const std::vector<LayerRecord>& records,
                const GeneratorOptions& options);

  // The least device memory it can run with, in bytes.
  static int64_t least_bytes(const Device& device, Ops& ops, const ModelConfig& model,
                             const std::vector<LayerRecord>& records, const GeneratorOptions& options);

  // An upper bound of least_bytes() without the ops' scratch, wherever the records are. `in_place`: all of them are
  // where the device computes. `experts_per_record` as in ModelShape. Needs no device and no weights.
  static GenerationNeed most_needed(const ModelConfig& model, DType dtype, int64_t experts_per_record,
                                    const GeneratorOptions& options, bool in_place);

  // New tokens of one sequence, following the `position` tokens already fed.
  struct Feed {
    int64_t sequence;  // below max_batch; position 0 restarts it
    int64_t position;
    std::span<const int32_t> ids;
    bool logits;         // whether the last token's logits are wanted
    int64_t length = 0;  // total tokens of the sequence, including those still to be fed; 0: none are
    bool every = false;  // `logits` means those of every token; needs options().logits_bytes
  };
  // At most one feed per sequence and pass_tokens() tokens in total. Returns (feeds that want logits, V), valid until
  // the next call. `adapter`: 0 for none, otherwise options().choices[adapter - 1].
  std::span<const float> run(const std::vector<Feed>& feeds, size_t adapter = 0);
  // The same for any number of rows: called with (rows, V), the first of which is the pass's row `first`. Rows are the
  // tokens whose logits are wanted, in the order of the feeds.
  using OnLogits = std::function<void(int64_t first, std::span<const float> logits)>;
  void run(const std::vector<Feed>& feeds, size_t adapter, const OnLogits& on_logits);

  int64_t pass_tokens() const { return shape_.tokens; }
  bool rewinds() const;  // whether all phases have Phase::cache_rewinds()
  const GeneratorOptions& options() const { return options_; }
  const ModelConfig& model() const { return model_.config; }
  const DeviceWeights& weights() const { return weights_; }

 private:
  // The model with one of the choices.
  struct Variant {
    Model model;
    std::vector<Model::NumberedPhase> phases;  // one for each of the base
    std::vector<int64_t> adapter_at;           // per phase: its adapters' offset in adapters_; -1: it has none
    int64_t bytes = 0;                         // of the adapters, without rows of tokens
  };
  static std::vector<Variant> variants_of(const Model& base, const GeneratorOptions& options);

  // Sizes derived from models and options.
  struct Shape {
    Shape(const Model& model, const std::vector<Variant>& variants, const GeneratorOptions& options);

    struct Range {  // bytes of a record's weights
      int64_t record, begin, bytes;
    };
    DType dtype;
    struct Table {  // a lookup table of a layer
      size_t phase;
      int64_t record, width;
      int64_t at;  // offset in bytes of its rows in rows_
    };
    int64_t at_once = 1;               // most records a phase needs whole at once
    int64_t tokens;                    // per pass
    int64_t logit_rows;                // whose logits are computed at once
    std::vector<Range> ranges;         // the whole records of each phase, then the head's table in pieces of rows
    std::vector<Table> tables;         // besides the embedding
    size_t layer_ranges;               // how many of `ranges` belong to phases
    std::vector<int64_t> table_begin;  // first row of each piece, then V
    Range norm;                        // the final norm
    OpsShape ops;
    std::vector<int64_t> cache_at;  // per phase: where its cache begins
    int64_t cache_bytes, table_bytes, workspace_bytes, x_bytes, row_bytes, logits_bytes, input_bytes;
    int64_t adapter_bytes = 0;    // of all choices
    int64_t token_row_bytes = 0;  // of the model's own rows of tokens and of all choices
    int64_t fixed_bytes() const;  // everything except the weights and the ops' scratch
    std::vector<WeightRange> weights_in(const std::vector<LayerRecord>& records) const;
  };

  // Returns options_.lent if that is enough. Otherwise returns nothing, and throws Error(cannot_fit) unless
  // memory_bytes is.
  std::span<std::byte> checked_memory(const Device& device) const;
  // Trained rows of single tokens (model/token_rows.h).
  struct TrainedRows {
    const Embedding* embedding = nullptr;
    const Head* head = nullptr;
    std::vector<int32_t> slot;  // (V) the embedding's trained row of an id, or -1; empty: it has none
    std::byte* weights = nullptr;
    const int32_t* head_ids = nullptr;
  };
  static int64_t token_row_bytes(const Model& model);
  void copy_token_rows(Device& device);

  int64_t stage(const std::vector<Feed>& feeds, const TrainedRows& trained, int64_t* wanted);
  void stage_rows(const LayerRecord& table, std::byte* rows, int64_t row, int32_t id) const;
  View rows_of(size_t phase, int64_t tokens);  // Phase::Decode::rows
  SequenceCache cache_of(size_t phase) const;
  std::vector<DeviceWeights::Turn> turns(int64_t tokens, int64_t heads) const;
  std::span<const float> run_head(View x, const int32_t* index, int64_t rows, const TrainedRows& trained);
  View run_layers(const NewTokens& tokens, const TrainedRows& trained, const Variant* variant);
  void copy_adapters(Device& device);

  Ops& ops_;
  Model model_;
  std::vector<Model::NumberedPhase> phases_;
  const std::vector<LayerRecord>& records_;
  GeneratorOptions options_;
  std::vector<Variant> variants_;          // of options_.choices
  std::vector<TrainedRows> trained_rows_;  // the model's own, then those of each choice
  Shape shape_;
  bool in_place_;
  LentMemory memory_;
  int64_t own_bytes_;  // device memory for weights in addition to what is lent
  Buffer cache_, tables_, norm_, workspace_, x_, rows_, logits_, inputs_, adapters_, token_rows_;
  Buffer host_x_, host_rows_, host_inputs_, host_logits_;
  DeviceWeights weights_;
  std::unique_ptr<Stream> compute_;
};

}  // namespace megatrain
