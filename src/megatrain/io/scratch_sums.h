// Checksums of a scratch file's contents, kept in memory: they prove that a drive returns the bytes that were written.
#pragma once

#include <cstdint>
#include <vector>

namespace megatrain {

// The most bytes under one checksum, and the most that a queue moves at once.
inline constexpr int64_t kScratchPiece = int64_t{1} << 20;

// The bytes of the file under one checksum.
struct ScratchPiece {
  int64_t index = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t end() const { return offset + bytes; }
};

// Takes 8 bytes per piece and 16 per range: 8 MB for a terabyte of large ranges. Calls for different pieces may run
// concurrently.
class ScratchSums {
 public:
  ScratchSums() = default;  // zero bytes
  // Ranges are consecutive and zero until written. Each is cut into pieces from its own start, so that no piece belongs
  // to two ranges.
  explicit ScratchSums(const std::vector<int64_t>& range_bytes);

  int64_t bytes() const { return bytes_; }  // of all ranges
  ScratchPiece piece_at(int64_t offset) const;

  // `data` holds the bytes of the piece.
  void set(const ScratchPiece& piece, const void* data);
  bool match(const ScratchPiece& piece, const void* data) const;

 private:
  struct Range {
    int64_t offset;
    int64_t first_piece;
  };

  int64_t bytes_ = 0;
  std::vector<Range> ranges_;
  std::vector<uint64_t> sums_;  // by piece
};

}  // namespace megatrain
