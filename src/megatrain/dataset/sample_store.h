// Tokenized samples on disk, mapped: token ids with a trained bit, and where each sample came from.
//
// A directory, complete once it has its final name:
//   tokens.bin   uint32, the entries of all samples in order
//   samples.bin  a SampleStore::Record for each sample
//   bad.jsonl    {"file", "line", "what"} for each sample that was left out
//   store.json   counts and checksums, written last
// All little-endian. The dataset's files are known by number, so the bytes depend on their contents, not on their
// paths.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"

namespace megatrain {

inline constexpr uint32_t kTrainedBit = uint32_t{1} << 31;  // in an entry: the token is trained as a label
inline constexpr uint32_t kTokenMask = kTrainedBit - 1;     // in an entry: the token's id

struct SamplePlace {
  std::string file;
  int64_t line = 0;  // where the sample begins, counted from 1
};

struct BadSample {
  SamplePlace place;
  std::string what;  // a message without the place
};

// "FILE:LINE: what"
std::string sentence_of(const BadSample& bad);

// The store differs from what was written. It can be removed and rebuilt.
class DamagedStore : public Error {
 public:
  DamagedStore(const std::string& directory, const std::string& what);
  const std::string& what_is_wrong() const { return what_; }

 private:
  std::string what_;
};

// Numbers of conversations whose training may surprise.
struct SampleNotes {
  int64_t endless = 0;     // nothing that ends the last answer is trained
  int64_t guessed = 0;     // the beginning of an answer is a guess
  int64_t unreasoned = 0;  // the template leaves out the reasoning of the last answer

  void add(const SampleNotes& other) {
    endless += other.endless;
    guessed += other.guessed;
    unreasoned += other.unreasoned;
  }
};

class SampleStore {
 public:
  struct Record {
    int64_t end = 0;  // the sample's end in entries; it begins where the previous one ends
    int64_t line = 0;
    int32_t file = 0;
    int32_t kind = 0;  // a sum of the following
  };
  enum Kind : int32_t {
    kDocument = 1,
    kLostTurns = 2,        // a conversation that was shortened (dataset/keep_answer.h)
    kShortenedSystem = 4,  // the same, of its system turn
  };

  // Opens a complete directory; `files` are the dataset's, in its order. DamagedStore if it differs from what was
  // written: every record is checked, and a tokens.bin below 1 GiB is compared with its checksum.
  SampleStore(const std::string& directory, std::vector<std::string> files);

  int64_t samples() const { return samples_; }
  int64_t tokens() const { return tokens_; }
  int64_t trained_tokens() const { return trained_tokens_; }
  const SampleNotes& notes() const { return notes_; }

  // DamagedStore if the files have changed so that a sample would be outside them.
  int64_t length(int64_t sample) const { return static_cast<int64_t>(entries(sample).size()); }
  std::span<const uint32_t> entries(int64_t sample) const;
  SamplePlace place(int64_t sample) const;
  // Whether it is a document, which may be cut, unlike a conversation.
  bool is_text(int64_t sample) const { return (record(sample).kind & kDocument) != 0; }
  bool lost_turns(int64_t sample) const { return (record(sample).kind & kLostTurns) != 0; }
  bool has_shortened_system(int64_t sample) const { return (record(sample).kind & kShortenedSystem) != 0; }
  // Error(io) if a file was truncated since it was opened. Call this after reading samples.
  void check_whole() const;
  [[noreturn]] void fail_damaged(const std::string& what) const;

  // xxh3_128 of everything that decides the samples: equal inputs have equal fingerprints, wherever the files are.
  const std::string& fingerprint() const { return fingerprint_; }
  const std::vector<BadSample>& bad() const { return bad_; }
  const std::string& directory() const { return directory_; }

 private:
  const Record& record(int64_t sample) const;
  void read_description();
  void check_samples() const;

  std::string directory_, fingerprint_;
  std::vector<std::string> files_;
  MappedFile tokens_file_, samples_file_;
  int64_t samples_ = 0, tokens_ = 0, trained_tokens_ = 0;
  SampleNotes notes_;
  std::string tokens_checksum_, samples_checksum_;
  std::vector<BadSample> bad_;
};

}  // namespace megatrain
