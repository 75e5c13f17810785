// Writes a SampleStore's directory block by block, so that a killed process loses only what was not saved.
//
// journal.jsonl has a line for each save: how far the input was read, and how long each file was when its bytes were
// durable. Anything beyond the last complete line is cut off when writing resumes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/dataset/sample_blocks.h"
#include "megatrain/dataset/sample_encoder.h"
#include "megatrain/io/file.h"

namespace megatrain {

class SampleWriter {
 public:
  // Resumes from what `directory`, which exists, holds. Starts over if that differs from what was written.
  explicit SampleWriter(const std::string& directory);

  const ReadPlace& place() const { return state_.place; }  // how far the input was read
  bool has_saved() const { return journal_bytes_ > 0; }
  int64_t samples() const { return state_.samples; }
  int64_t tokens() const { return state_.tokens; }
  const std::vector<BadRecord>& bad() const { return bad_; }

  void add(const EncodedBlock& block, const ReadPlace& after);
  void save();  // makes everything added so far durable
  // Completes the store, except for its name.
  void finish(const std::string& fingerprint);

 private:
  struct State {
    ReadPlace place;
    int64_t samples = 0, tokens = 0, trained_tokens = 0;
    int64_t bad = 0, bad_bytes = 0;
    SampleNotes notes;
  };
  void sync() const;
  void read_journal();
  bool is_whole() const;
  bool read_bad();

  std::string directory_;
  File tokens_, samples_, bad_file_, journal_;
  int64_t journal_bytes_ = 0;
  State state_, saved_;
  std::vector<BadRecord> bad_;
};

std::string journal_path(const std::string& directory);
// For a store that has its final name.
void remove_journal(const std::string& directory);

}  // namespace megatrain
