// The micro-batches of a step, and where they come from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatrain {

// T = sequences of a micro-batch * seq_len.
struct MicroBatch {
  std::vector<int32_t> tokens;          // (T)
  std::vector<int32_t> labels;          // (T) what this position is to predict; kIgnoreLabel: not trained
  std::vector<int32_t> positions;       // (T) within its document
  std::vector<int32_t> document_begin;  // (D + 1) first token of each document, then T
  int64_t longest = 0;                  // tokens of the longest document
  bool uniform = true;                  // every document has `longest` tokens
  int64_t trained = 0;                  // labels that are trained

  void clear();
  // Ends the list of documents and measures them.
  void close();
};

struct Batch {
  std::vector<MicroBatch> micro_batches;
  int64_t tokens = 0;
  int64_t trained = 0;
};

// Sequences in an order that is a function of the data, the configuration and the step alone: a run that goes on from
// step n sees what it would have seen.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Steps count from 0. A step without a trained token is Error(bad_input). `load` reuses the memory of `into`.
  virtual void load(int64_t step, Batch& into) = 0;

  Batch batch(int64_t step) {
    Batch batch;
    load(step, batch);
    return batch;
  }

  // Passes over the data that so many steps, all of them loaded, come to: 1.5 is one and a half; 0: not counted.
  virtual double epochs_done(int64_t /*steps*/) const { return 0; }

  // Steps of the epochs that the source was made for; 0: it goes on for ever.
  virtual int64_t steps() const = 0;

  // Steps of one pass over the data, the last of them perhaps not full; 0: there are no passes.
  virtual int64_t epoch_steps() const { return 0; }

  // Where token `token` of a micro-batch of a step comes from, for a person: "FILE:LINE"; empty: not known, or padding.
  virtual std::string place(int64_t /*step*/, int64_t /*micro_batch*/, int64_t /*token*/) { return ""; }

  // Of the content, where it is known; part of a run's identity.
  virtual std::string fingerprint() const { return ""; }
};

}  // namespace megatrain
