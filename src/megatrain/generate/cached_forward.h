// The whole model over new tokens of several sequences, with a cache of keys and values on the device: work and time
// are linear in the new tokens. Layers come to the device as in training (device_weights.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "megatrain/generate/device_weights.h"
#include "megatrain/generate/lent_memory.h"
#include "megatrain/model/model.h"
#include "megatrain/ops/ops.h"
#include "megatrain/store/record.h"

namespace megatrain {

struct GeneratorOptions {
  int64_t max_context = 0;     // tokens of a sequence, prompt and answer
  int64_t max_batch = 1;       // sequences at once
  int64_t chunk_tokens = 512;  // new tokens of one pass; long prompts take several
  int64_t memory_bytes = 0;    // device memory that may be taken, ops' scratch included unless some is lent
  bool in_place = true;        // on the CPU device host memory is computed on where it lies; false: as on a GPU
  // Device memory that is used first and outlives the generator. Where it has GenerationNeed::bytes, nothing else is
  // needed; with less it is not used. The ops then have their scratch already.
  std::span<std::byte> lent = {};
};

// What generating takes where nothing is known of where the weights will be.
struct GenerationNeed {
  int64_t bytes = 0;  // of the device, without the ops' scratch
  OpsShape ops;       // which decides that scratch
};

class CachedForward {
 public:
  // `records` (model_layouts) outlive this and do not change meanwhile: no lane is at work on them and no row of the
  // embedding is behind (Trainer::drain()). Throws Error(cannot_fit).
  CachedForward(Device& device, Ops& ops, const ModelConfig& model, const std::vector<LayerRecord>& records,
                const GeneratorOptions& options);
  // The same with a model that was built for the options: tokens of a pass, positions.
  CachedForward(Device& device, Ops& ops, Model model, const std::vector<LayerRecord>& records,
                const GeneratorOptions& options);

  // Device bytes without which it cannot run.
  static int64_t least_bytes(const Device& device, Ops& ops, const ModelConfig& model,
                             const std::vector<LayerRecord>& records, const GeneratorOptions& options);

  // The most that least_bytes() can be without the ops' scratch, wherever records lie; `in_place`: all of them where
  // the device computes. `experts_per_record` as ModelShape has it. Needs no device and no weights.
  static GenerationNeed most_needed(const ModelConfig& model, DType dtype, int64_t experts_per_record,
                                    const GeneratorOptions& options, bool in_place);

  // New tokens of one sequence, that follow the `position` tokens already fed.
  struct Feed {
    int64_t sequence;  // below max_batch; position 0 begins it anew
    int64_t position;
    std::span<const int32_t> ids;
    bool logits;         // of the last of them are wanted
    int64_t length = 0;  // tokens of the sequence, with those that are yet to be fed; 0: none are
  };
  // At most one feed a sequence and pass_tokens() tokens. Returns (feeds that want logits, V), good until the next
  // call.
  std::span<const float> run(const std::vector<Feed>& feeds);

  int64_t pass_tokens() const { return shape_.tokens; }
  bool rewinds() const;  // Phase::cache_rewinds() of all phases
  const GeneratorOptions& options() const { return options_; }
  const ModelConfig& model() const { return model_.config; }
  const DeviceWeights& weights() const { return weights_; }

 private:
  // Sizes that follow from model and options; see cached_forward.cc.
  struct Shape {
    Shape(const Model& model, const GeneratorOptions& options);

    struct Range {  // bytes of a record's weights
      int64_t record, begin, bytes;
    };
    DType dtype;
    struct Table {  // whose rows a phase of the layers looks up
      size_t phase;
      int64_t record, width;
      int64_t at;  // bytes: where its rows begin, behind those of the tables before it
    };
    int64_t at_once = 1;               // records that a phase needs whole
    int64_t tokens;                    // of a pass
    std::vector<Range> ranges;         // the whole records of each phase, then the head's table in pieces
    std::vector<Table> tables;         // beside the embedding
    size_t layer_ranges;               // of `ranges`, those of phases
    std::vector<int64_t> table_begin;  // first row of each piece, then V
    Range norm;                        // the final norm
    OpsShape ops;
    std::vector<int64_t> cache_at;  // of each phase: where its keys begin
    int64_t cache_bytes, table_bytes, workspace_bytes, x_bytes, row_bytes, logits_bytes, input_bytes;
    int64_t fixed_bytes() const;  // all but the weights and the ops' scratch
    std::vector<WeightRange> weights_in(const std::vector<LayerRecord>& records) const;
  };

  // options_.lent where it is enough. Else none, and Error(cannot_fit) unless memory_bytes are.
  std::span<std::byte> checked_memory(const Device& device) const;
  int64_t stage(const std::vector<Feed>& feeds, int64_t* wanted);
  void stage_rows(const LayerRecord& table, std::byte* rows, int64_t row, int32_t id) const;
  View rows_of(size_t phase, int64_t tokens);  // Phase::Decode::rows
  SequenceCache cache_of(size_t phase) const;
  std::vector<DeviceWeights::Turn> turns(int64_t tokens, bool with_head) const;
  View run_layers(const NewTokens& tokens);

  Ops& ops_;
  Model model_;
  std::vector<Model::NumberedPhase> phases_;
  const std::vector<LayerRecord>& records_;
  GeneratorOptions options_;
  Shape shape_;
  bool in_place_;
  LentMemory memory_;
  int64_t own_bytes_;  // that weights may take of the device beside what is lent
  Buffer cache_, tables_, norm_, workspace_, x_, rows_, logits_, inputs_;
  Buffer host_x_, host_rows_, host_inputs_, host_logits_;
  DeviceWeights weights_;
  std::unique_ptr<Stream> compute_;
};

}  // namespace megatrain
