// The micro-batches of a step, and where they come from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatrain {

// T = sequences of a micro-batch * seq_len.
struct MicroBatch {
  std::vector<int32_t> tokens;          // (T)
  std::vector<int32_t> labels;          // (T) the token to predict at this position; kIgnoreLabel: not trained
  std::vector<int32_t> positions;       // (T) position within its document
  std::vector<int32_t> document_begin;  // (D + 1) first token of each document, then T
  int64_t longest = 0;                  // tokens of the longest document
  bool uniform = true;                  // every document has `longest` tokens
  int64_t trained = 0;                  // labels that are trained

  void clear();
  // Ends the list of documents and measures them. Call this last.
  void close();
};

struct Batch {
  std::vector<MicroBatch> micro_batches;
  int64_t tokens = 0;
  int64_t trained = 0;
};

// Yields sequences in an order that is a function of the data, the configuration and the step alone: a run resumed at
// step n sees what it would have seen.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Steps count from 0. A step without trained tokens is Error(bad_input). `load` reuses the memory of `into`.
  virtual void load(int64_t step, Batch& into) = 0;

  Batch batch(int64_t step) {
    Batch batch;
    load(step, batch);
    return batch;
  }

  // Passes over the data after this many steps, all of which have been loaded: 1.5 is one and a half; 0: not counted.
  virtual double epochs_done(int64_t /*steps*/) const { return 0; }

  // Steps of the epochs that the source was made for; 0: no end.
  virtual int64_t steps() const = 0;

  // Steps of one pass over the data, the last of which may be partly filled; 0: there are no passes.
  virtual int64_t epoch_steps() const { return 0; }

  // Where a token of a micro-batch comes from, for messages: "FILE:LINE"; empty if unknown or padding.
  virtual std::string place(int64_t /*step*/, int64_t /*micro_batch*/, int64_t /*token*/) { return ""; }

  // A fingerprint of the content, if known; part of a run's identity.
  virtual std::string fingerprint() const { return ""; }
};

}  // namespace megatrain
