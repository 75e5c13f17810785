// The bytes of a file, unpacked if it is compressed by gzip or zstd. The file's first bytes decide, not its name.
//
// Memory stays bounded whatever the file claims: unpacked bytes are held from the last place that was forgotten on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "megatrain/io/file.h"

namespace megatrain {

// Unpacks a compressed file from its beginning.
class Unpacker {
 public:
  virtual ~Unpacker() = default;
  // Appends the next bytes to `out`; false at the end. Error(bad_input) for a damaged or truncated file.
  virtual bool append(std::string& out) = 0;
  virtual int64_t stored_bytes() const = 0;  // of the file, read so far
};

class ByteSource {
 public:
  explicit ByteSource(const std::string& path);
  ByteSource(const ByteSource&) = delete;  // the unpacker reads `file_`
  ByteSource& operator=(const ByteSource&) = delete;

  bool is_packed() const { return is_packed_; }
  // Appends up to `bytes` bytes from `at` on, fewer only at the end. Returns how many.
  int64_t read(std::string& out, int64_t at, int64_t bytes);
  bool ends_at(int64_t at);  // whether there is no byte at `at` or behind it
  // Lets go of what stands before `at`. Reading it again unpacks the file anew from its beginning.
  void forget_before(int64_t at);
  // How much of the file had to be read for the bytes before `at`, roughly: for progress.
  int64_t stored_bytes(int64_t at) const;
  int64_t held_bytes() const { return static_cast<int64_t>(held_.size()); }  // unpacked, in memory

 private:
  void unpack_to(int64_t end);
  void start_over();

  File file_;
  int64_t bytes_ = 0;  // of the file
  bool is_packed_ = false;
  std::unique_ptr<Unpacker> unpacker_;
  std::string held_;       // unpacked bytes from `begin_` on
  int64_t begin_ = 0;      // where `held_` begins
  int64_t kept_from_ = 0;  // bytes before it may go
  bool unpacked_all_ = false;
};

}  // namespace megatrain
