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

}  // namespace megatrain
