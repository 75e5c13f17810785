// A typed view of memory that it does not own: rows of contiguous elements, `row_stride` elements apart.
// Shapes are (rows, cols); an op whose rows hold several heads says so in its args. All sizes are 64-bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megatrain/tensor/dtype.h"

namespace megatrain {

struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;  // elements

  bool empty() const { return data == nullptr; }
  bool contiguous() const { return row_stride == cols; }
  int64_t elements() const { return rows * cols; }
  int64_t bytes() const { return elements() * dtype_bytes(dtype); }

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }

  // Rows [begin, begin + count).
  View slice_rows(int64_t begin, int64_t count) const {
    View part = *this;
    part.data = static_cast<std::byte*>(data) + begin * row_stride * dtype_bytes(dtype);
    part.rows = count;
    return part;
  }
  // Columns [begin, begin + count) of every row.
  View slice_cols(int64_t begin, int64_t count) const {
    View part = *this;
    part.data = static_cast<std::byte*>(data) + begin * dtype_bytes(dtype);
    part.cols = count;
    return part;
  }
};

inline View matrix(void* data, DType dtype, int64_t rows, int64_t cols) { return {data, dtype, rows, cols, cols}; }
inline View vector(void* data, DType dtype, int64_t size) { return {data, dtype, 1, size, size}; }

}  // namespace megatrain
