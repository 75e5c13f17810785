// Cuts one workspace into aligned pieces. With nullptr it only counts bytes, so that sizes and addresses always agree.
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

// An activation that is stored for all tokens, or for one range of tokens at a time.
struct Chunked {
  View view;  // (T, n) or (C, n)
  bool whole = false;
  View at(const TokenRange& range) const { return view.slice_rows(whole ? range.begin : 0, range.count); }
};

// The buffers of one call of a phase. The block, each mixer and each channel have their own keep levels, counted from
// 1. Each level also keeps what the levels below it keep.
struct Space {
  int64_t tokens;  // T of the call's micro-batch; to count bytes, the most
  int64_t chunk;   // C, the maximum tokens of a range
  int64_t keep;    // keep level of the mixer, channel or block that carves; 0: nothing
  Carver& work;    // scratch and gradients of the call
  Carver& part;    // scratch and gradients of the parts after the first; reuses the bytes of `work`
  Carver& made;    // activations that are not kept; with several parts, each part hands them to the next
  Carver& kept;    // activations kept for backward
  bool backward;   // the call is a backward, or a backward will follow it

  Space in_one_range() const { return {tokens, tokens, keep, work, part, made, kept, backward}; }
  Space with(int64_t level) const { return {tokens, chunk, level, work, part, made, kept, backward}; }
  Carver& at(int64_t level) const { return keep >= level ? kept : made; }
  // `always_whole`: the activation is still read after other ranges have been computed.
  Chunked chunked(int64_t level, DType dtype, int64_t cols, bool always_whole = false) const {
    const bool whole = keep >= level || always_whole;
    return {at(level).view(dtype, whole ? tokens : chunk, cols), whole};
  }
};

}  // namespace megatrain
