// Tokenized samples, packed into the sequences of a run.
//
// An epoch goes through every dataset as often as its weight says: whole passes, and for the fraction a part of it that
// (seed, epoch) chooses. Samples are shuffled and packed best-fit into sequences (dataset/packing.h), then the
// sequences are shuffled. All this is a function of (seed, epoch) and the samples' lengths, so a run can resume at any
// step. The rest of a sequence is padding: a document of its own in which nothing is trained. With `short_epochs`, an
// epoch fills up its last step with sequences of padding, so that every epoch begins with a new step.
//
// Without packing a sequence is one sample. Those of a micro-batch then follow each other without padding between them,
// and the micro-batch ends soon after the last one: its tokens depend on its samples, not on seq_len.
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
  std::vector<int64_t> samples;  // indices in the store
  double weight = 1;
};

enum class Overlong { error, truncate, drop, by_turn, keep_answer };  // keep_answer: the store has cut them

struct SampleDataOptions {
  int64_t seq_len = 0, batch = 0, micro_batch = 0;  // sequences
  int64_t vocab = 0;                                // of the model
  bool check_ids = true;  // compare ids with vocab; unnecessary if the tokenizer's vocabulary fits
  int32_t padding = 0;    // the id that fills up a sequence
  uint64_t seed = 0;
  double epochs = 0;  // sequences beyond them are padding; 0: no end
  bool packing = true, shuffle = true;
  Overlong overlong = Overlong::error;
  bool recent = false;        // by_turn keeps the end of a prompt, not its beginning
  bool short_epochs = false;  // the last step of an epoch is not filled from the next epoch
  bool whole_steps = false;   // with short_epochs: as many steps as the samples of all epochs fill, like Axolotl
  int64_t tolerated = 0;      // overlong conversations that may be left out before Overlong::error ends the run
  KeyNames names{};           // names of the configuration's keys, for messages
};

// Statistics of the samples.
struct SampleCounts {
  int64_t samples = 0, tokens = 0, trained = 0;     // in one pass over every dataset, before weights
  int64_t truncated = 0;                            // conversations
  int64_t dropped_turns = 0, truncated_system = 0;  // of those, the ones that lost their oldest turns or a system's end
  int64_t dropped = 0;                              // conversations that are too long or have nothing to train
  int64_t too_long = 0;                             // of those, the ones that are too long
  int64_t overlong = 0;                             // of those, the tolerated ones
  int64_t sequences = 0, epoch_tokens = 0;          // in the first epoch, without padding
  int64_t longest = 0;                              // tokens of the longest sample

  // The fraction of the first epoch's sequences that is not padding.
  double filled(int64_t seq_len) const {
    return static_cast<double>(epoch_tokens) / static_cast<double>(sequences * seq_len);
  }
};

class SampleData : public BatchSource {
 public:
  // Throws Error(bad_input), with file and line, for a conversation that is too long (under Overlong::error) or an id
  // that the model lacks, and also if nothing is left to train on.
  SampleData(std::vector<SampleSet> sets, const SampleDataOptions& options);

  void load(int64_t step, Batch& into) override;
  int64_t steps() const override { return steps_; }
  double epochs_done(int64_t steps) const override;
  int64_t epoch_steps() const override;
  std::string fingerprint() const override { return fingerprint_; }
  std::string place(int64_t step, int64_t micro_batch, int64_t token) override;

  // From now on, every sequence has seq_len tokens, without packing too.
  void pad_sequences() { padded_ = true; }

  const SampleCounts& counts() const { return counts_; }
  SamplePlace place(int64_t sample) const;  // of a SamplePiece::sample
  // The pieces of a sequence of the run; empty: all padding.
  std::vector<SamplePiece> sequence(int64_t index);
  bool is_past_end(int64_t index) const { return end_ > 0 && index >= end_; }  // beyond the epochs

 private:
  struct Epoch {
    int64_t number = -1;
    Packing packing;
    std::vector<int64_t> order;  // order of its sequences
  };

  [[noreturn]] void fail_empty() const;
  int64_t filled_steps() const;
  void cut(size_t set);
  void find_fingerprint();
  std::vector<SamplePiece> pieces_of_epoch(int64_t epoch) const;
  const Epoch& epoch(int64_t number);
  void append(const std::vector<SamplePiece>& pieces, MicroBatch& into) const;
  void append_padding(int64_t count, MicroBatch& into) const;
  bool is_padded() const { return options_.packing || padded_; }
  size_t set_of(int64_t sample) const;
  // A piece's entries; those of a shortened conversation are written to `room`.
  std::span<const uint32_t> entries(const SamplePiece& piece, std::vector<uint32_t>& room) const;
  bool is_shortened(const SampleStore& store, int64_t sample) const;
  void check_ids(const SamplePiece& piece, std::span<const uint32_t> tokens) const;

  SampleDataOptions options_;
  std::vector<SampleSet> sets_;
  std::vector<int64_t> base_;  // (sets + 1) index of each set's first sample, counted over all stores
  std::vector<std::vector<SamplePiece>> pieces_;  // per set
  SampleCounts counts_;
  std::vector<int64_t> first_;  // sequences before each epoch, as far as known
  Epoch current_;
  int64_t end_ = 0;  // sequences of the run; 0: no end
  int64_t steps_ = 0;
  bool padded_ = false;
  std::string fingerprint_;
};

}  // namespace megatrain
