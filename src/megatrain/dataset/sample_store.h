// Tokenised samples on disk, mapped: token ids with what of them is trained, and where each sample came from.
//
// A directory, complete once it has its name:
//   tokens.bin   uint32, entries of all samples in order
//   samples.bin  SampleStore::Record of each sample
//   bad.jsonl    {"file", "line", "what"} of each sample that was left out
//   store.json   counts and checksums, written last
// All little-endian. Files of the dataset are known by number: the bytes depend on what they hold, not on their paths.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/io/file.h"

namespace megatrain {

inline constexpr uint32_t kTrainedBit = uint32_t{1} << 31;  // of an entry: the token is trained, as a label
inline constexpr uint32_t kTokenMask = kTrainedBit - 1;     // of an entry: the token's id

struct SamplePlace {
  std::string file;
  int64_t line = 0;  // from 1; where the sample begins
};

struct BadSample {
  SamplePlace place;
  std::string what;  // a sentence without the place
};

// "FILE:LINE: what"
std::string sentence_of(const BadSample& bad);

// The store is not as it was written. It can be removed and made again.
class DamagedStore : public Error {
 public:
  DamagedStore(const std::string& directory, const std::string& what);
  const std::string& what_is_wrong() const { return what_; }

 private:
  std::string what_;
};

// Conversations that are trained otherwise than one may expect.
struct SampleNotes {
  int64_t endless = 0;     // nothing that ends the last answer is trained
  int64_t guessed = 0;     // where an answer begins is a guess
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
    int64_t end = 0;  // in entries, of the sample; it begins where the one before ends
    int64_t line = 0;
    int32_t file = 0;
    int32_t text = 0;  // 1: a document
  };

  // A complete directory; `files` are the dataset's, in its order. DamagedStore where it is not as it was written:
  // every record is checked, and tokens.bin by its checksum below 1 GiB.
  SampleStore(const std::string& directory, std::vector<std::string> files);

  int64_t samples() const { return samples_; }
  int64_t tokens() const { return tokens_; }
  int64_t trained_tokens() const { return trained_tokens_; }
  const SampleNotes& notes() const { return notes_; }

  // DamagedStore where the files changed since, so that a sample would lie outside them.
  int64_t length(int64_t sample) const { return static_cast<int64_t>(entries(sample).size()); }
  std::span<const uint32_t> entries(int64_t sample) const;
  SamplePlace place(int64_t sample) const;
  // A document, which may be cut; a conversation may not.
  bool is_text(int64_t sample) const { return record(sample).text != 0; }
  // Error(io) where a file was cut since it was opened; to be called after samples were read.
  void check_whole() const;
  [[noreturn]] void fail_damaged(const std::string& what) const;

  // xxh3_128 of all that decides the samples: equal inputs, equal fingerprint, wherever the files are.
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
