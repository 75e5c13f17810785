// Cuts one workspace into aligned pieces. Run on nullptr it only counts, so sizes and addresses come from one list.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megatrain/base/math.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  View view(DType dtype, int64_t rows, int64_t cols) {
    return matrix(take(rows * cols * dtype_bytes(dtype)), dtype, rows, cols);
  }

  template <class T>
  T* array(int64_t count) {
    return static_cast<T*>(take(count * static_cast<int64_t>(sizeof(T))));
  }

  int64_t bytes() const { return offset_; }

 private:
  void* take(int64_t bytes) {
    void* piece = base_ ? base_ + offset_ : nullptr;
    offset_ += round_up(bytes, 256);
    return piece;
  }
  std::byte* base_;
  int64_t offset_ = 0;
};

// Consecutive tokens of a micro-batch.
struct TokenRange {
  int64_t begin, count;
};

// An activation that lies whole, or one range of tokens of it at a time.
struct Chunked {
  View view;  // (T, n) or (C, n)
  bool whole = false;
  View at(const TokenRange& range) const { return view.slice_rows(whole ? range.begin : 0, range.count); }
};

// Where the buffers of one call of a phase lie. A mixer, a channel and the block around them have levels of their own
// of what is kept, counted from 1; each keeps what the ones below it keep.
struct Space {
  int64_t tokens;  // T of a micro-batch
  int64_t chunk;   // C, the most of a range
  int64_t keep;    // the level of whom it is given to; 0: nothing
  Carver& work;    // scratch and gradients of the call
  Carver& part;    // the same for parts behind the first, over the same bytes
  Carver& made;    // activations that are not kept; with several parts these hand it on
  Carver& kept;    // activations that wait for backward
  bool backward;   // one follows, or this is it

  Space with(int64_t level) const { return {tokens, chunk, level, work, part, made, kept, backward}; }
  Carver& at(int64_t level) const { return keep >= level ? kept : made; }
  // `always_whole`: it is read after other ranges were computed.
  Chunked chunked(int64_t level, DType dtype, int64_t cols, bool always_whole = false) const {
    const bool whole = keep >= level || always_whole;
    return {at(level).view(dtype, whole ? tokens : chunk, cols), whole};
  }
};

}  // namespace megatrain
