// Where the bytes of a model's files go in the weights of a record, and their conversion on the way. Slices are read in
// pieces that are placed independently of each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "megatrain/hub/model_files.h"
#include "megatrain/io/file_reader.h"
#include "megatrain/tensor/dtype.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

struct StoredRange {
  int64_t begin = 0, end = 0;
};

// Consecutive lines of elements in a file, all of one size, and the tensors of a record that they belong to.
//
//   flat     a line is one element; they are the elements of the only part, in order
//   rows     a line is a row of some part: row (line - first) / step, if that is a whole number
//   columns  a line is a column of every part: its row r is at first + r * step in the line
struct FileSlice {
  enum class Lines : uint8_t { flat, rows, columns };
  struct Part {
    int64_t at = 0;  // bytes into the record's stored form
    int64_t rows = 0, cols = 0;
    int64_t first = 0, step = 1;
  };

  Lines lines_are = Lines::flat;
  int64_t file = 0, offset = 0;  // of the first byte
  DType from = DType::bf16;      // in the file
  DType to = DType::bf16;        // in the record; u8: bytes that are moved as they are
  int64_t line = 1;              // elements
  int64_t lines = 0;
  std::vector<Part> parts;

  int64_t line_bytes() const { return line * dtype_bytes(from); }
  int64_t part_bytes(const Part& part) const { return part.rows * part.cols * dtype_bytes(to); }
  int64_t begin() const;  // of all parts in the stored form; slices overlap nowhere
  int64_t end() const;
};

// Lines [first, first + count) of a slice, which are read at once.
struct SlicePiece {
  int64_t slice = 0;
  int64_t first = 0, count = 0;
};

// The slices of a record, in the order of its tensors. `file_of` numbers the files as ModelFiles has them. Throws
// Error(bad_input) as find_source() does.
std::vector<FileSlice> file_slices(const ModelFiles& files, const LayerLayout& layout);

// Cuts slices into pieces of about kFileRangeBytes.
std::vector<SlicePiece> cut_slices(const std::vector<FileSlice>& slices);
FileRange range_of(const FileSlice& slice, const SlicePiece& piece);

// Places the bytes of a piece, where `out` is byte `out_begin` of the stored form. Values are rounded as
// LayerRecord::write_master() rounds them.
void place_piece(const FileSlice& slice, const SlicePiece& piece, const std::byte* data, std::byte* out,
                 int64_t out_begin);

}  // namespace megatrain
