// Tokenised samples, packed into the sequences of a run.
//
// An epoch goes through every dataset as often as its weight says: whole times, and for what is left a part of it that
// (seed, epoch) chooses. Samples are shuffled, packed best-fit into sequences (dataset/packing.h), and the
// sequences shuffled: a function of (seed, epoch) and the samples' lengths, so a run can go on at any step. What of a
// sequence is left over is padding: a document of its own in which nothing is trained. With `short_epochs` an epoch
// fills its last step up with sequences of padding, so that every epoch starts with a step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/config/key_names.h"
#include "megatrain/data/batch.h"
#include "megatrain/dataset/packing.h"
#include "megatrain/dataset/sample_store.h"

namespace megatrain {

struct SampleSet {
  std::shared_ptr<const SampleStore> store;
  std::vector<int64_t> samples;  // of the store
  double weight = 1;
};

enum class Overlong { error, truncate, drop, by_turn };

struct SampleDataOptions {
  int64_t seq_len = 0, batch = 0, micro_batch = 0;  // sequences
  int64_t vocab = 0;                                // of the model
  bool check_ids = true;                            // against it; needless where the tokenizer's vocabulary fits
  int32_t padding = 0;                              // the id that fills a sequence up
  uint64_t seed = 0;
  double epochs = 0;  // sequences past them are padding; 0: for ever
  bool packing = true, shuffle = true;
  Overlong overlong = Overlong::error;
  bool recent = false;        // by_turn keeps the end of a prompt rather than its beginning
  bool short_epochs = false;  // the last step of an epoch holds what is left of it, and none goes on into the next
  bool whole_steps = false;   // with these: as many steps as the samples of all epochs fill, as Axolotl counts
  int64_t tolerated = 0;      // overlong conversations that are left out before Overlong::error ends the run
  KeyNames names{};           // of the configuration's keys, for messages
};

// What the samples came to.
struct SampleCounts {
  int64_t samples = 0, tokens = 0, trained = 0;  // of one pass over every dataset, before weights
  int64_t truncated = 0;                         // conversations
  int64_t dropped = 0;                           // conversations that are too long, or hold nothing to train
  int64_t overlong = 0;                          // of those, the ones that were tolerated
  int64_t sequences = 0, epoch_tokens = 0;       // of the first epoch, padding not counted
  int64_t longest = 0;                           // tokens of the longest sample

  // The part of the first epoch's sequences that is no padding.
  double filled(int64_t seq_len) const {
    return static_cast<double>(epoch_tokens) / static_cast<double>(sequences * seq_len);
  }
};

class SampleData : public BatchSource {
 public:
  // Throws Error(bad_input), naming file and line, for a conversation that is too long (under Overlong::error), an id
  // that the model lacks, and where nothing is left to train on.
  SampleData(std::vector<SampleSet> sets, const SampleDataOptions& options);

  void load(int64_t step, Batch& into) override;
  int64_t steps() const override { return steps_; }
  double epochs_done(int64_t steps) const override;
  int64_t epoch_steps() const override;
  std::string fingerprint() const override { return fingerprint_; }
  std::string place(int64_t step, int64_t micro_batch, int64_t token) override;

  const SampleCounts& counts() const { return counts_; }
  SamplePlace place(int64_t sample) const;  // of a SamplePiece
  // The pieces of a sequence of the run; none: padding.
  std::vector<SamplePiece> sequence(int64_t index);
  bool is_past_end(int64_t index) const { return end_ > 0 && index >= end_; }  // of the epochs

 private:
  struct Epoch {
    int64_t number = -1;
    Packing packing;
    std::vector<int64_t> order;  // of its sequences
  };

  [[noreturn]] void fail_empty() const;
  int64_t filled_steps() const;
  void cut(size_t set);
  void find_fingerprint();
  std::vector<SamplePiece> pieces_of_epoch(int64_t epoch) const;
  const Epoch& epoch(int64_t number);
  void append(const std::vector<SamplePiece>& pieces, MicroBatch& into) const;
  void append_padding(int64_t count, MicroBatch& into) const;
  size_t set_of(int64_t sample) const;
  // Those of a shortened conversation are written to `room`.
  std::span<const uint32_t> entries(const SamplePiece& piece, std::vector<uint32_t>& room) const;
  bool is_shortened(const SampleStore& store, int64_t sample) const;
  void check_ids(const SamplePiece& piece, std::span<const uint32_t> tokens) const;

  SampleDataOptions options_;
  std::vector<SampleSet> sets_;
  std::vector<int64_t> base_;                     // (sets + 1) the first sample of each, counted over all stores
  std::vector<std::vector<SamplePiece>> pieces_;  // of each set
  SampleCounts counts_;
  std::vector<int64_t> first_;  // sequences before each epoch, as far as known
  Epoch current_;
  int64_t end_ = 0;  // sequences of the run; 0: no end
  int64_t steps_ = 0;
  std::string fingerprint_;
};

}  // namespace megatrain
