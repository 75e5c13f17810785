// Raw token ids, read by mmap and cut into the micro-batches of a step.
//
// Sequence i is tokens [i*S, (i+1)*S) of the file; tokens after the last whole sequence are not used. Positions and
// attention restart at every document start and at every sequence start. A document that crosses a sequence's end
// continues in the next sequence as a new document. Position t predicts the label of t+1, so the last position of a
// document is not trained.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatrain/config/config.h"
#include "megatrain/data/batch.h"
#include "megatrain/io/file.h"

namespace megatrain {

class TokenData : public BatchSource {
 public:
  // Opens and checks the files of config.data against each other and the vocabulary. Throws Error(bad_input).
  TokenData(const TrainConfig& config, int64_t vocab);

  int64_t tokens() const { return tokens_; }
  int64_t sequences() const { return sequences_; }  // whole ones only

  // The sequence at place `index` of the run: data.order[index], or 0, 1, 2, ... starting over after the last one.
  int64_t sequence_at(int64_t index) const;

  void load(int64_t step, Batch& into) override;
  int64_t steps() const override { return steps_; }
  double epochs_done(int64_t steps) const override {
    return order_file_ ? 0 : static_cast<double>(steps * batch_) / static_cast<double>(sequences_);
  }
  int64_t epoch_steps() const override { return (sequences_ + batch_ - 1) / batch_; }
  std::string place(int64_t step, int64_t micro_batch, int64_t token) override;

 private:
  void append_sequence(int64_t sequence, MicroBatch& into) const;
  void check_documents() const;
  void check_order(int64_t needed) const;
  void check_tokens(int64_t begin, int64_t end) const;
  void check_labels(int64_t begin, int64_t end) const;
  int64_t token(int64_t index) const { return wide_ ? wide_ids_[index] : ids_[index]; }

  std::optional<MappedFile> token_file_, document_file_, label_file_, order_file_;
  bool wide_ = false;  // ids have 4 bytes, otherwise 2
  std::span<const uint16_t> ids_;
  std::span<const uint32_t> wide_ids_;
  std::span<const uint64_t> documents_;  // starts; empty without a file
  std::span<const int32_t> labels_;
  std::span<const uint64_t> order_;
  int64_t vocab_ = 0, tokens_ = 0, sequences_ = 0;
  bool tokens_checked_ = false, labels_checked_ = false;  // the whole file was checked when it was opened
  int64_t seq_len_ = 0, batch_ = 0, micro_batch_ = 0, steps_ = 0;
};

}  // namespace megatrain
