// Where the weights of records come from that live neither in memory nor in a scratch file: they stay in the model's
// own files, which are only read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace megatrain {

class WeightSource {
 public:
  WeightSource() = default;
  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  // Reads bytes [begin, begin + bytes) of a record's weights in their stored form, zeros in the gaps. Thread-safe.
  // Throws Error(io) if the files cannot be read or changed, and Error(bad_input) if a weight is not finite.
  virtual void read(int64_t record, int64_t begin, int64_t bytes, std::byte* out) = 0;

  // Reads a whole record. `next`: the record whose read() or read_whole() is the next call, -1 if that is not known.
  // Its first bytes are fetched while the last ones of this record are awaited, so that the drive is never idle.
  virtual void read_whole(int64_t record, std::byte* out, int64_t next) = 0;

  virtual bool direct() const = 0;  // whether reads bypass the page cache
};

}  // namespace megatrain
