#include "megatrain/model/files/file_slices.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "megatrain/base/error.h"
#include "megatrain/base/finite.h"
#include "megatrain/base/split_master.h"
#include "megatrain/hub/convert.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/tensor/mxfp4.h"

namespace megatrain {

int64_t FileSlice::begin() const { return std::ranges::min_element(parts, {}, &Part::at)->at; }

int64_t FileSlice::end() const {
  int64_t end = 0;
  for (const Part& part : parts) end = std::max(end, part.at + part_bytes(part));
  return end;
}

namespace {

// Adds the slices of one record, tensor by tensor.
class SliceList {
 public:
  SliceList(const ModelFiles& files, const LayerLayout& layout) : files_(files), layout_(layout) {}

  void add(const TensorSpec& tensor) {
    const TensorSource source = find_source(files_, tensor);
    ensure(source.packing == tensor.packing, "a record is packed as its files are");
    const int64_t at = layout_.packed() ? tensor.packed_offset : tensor.offset * dtype_bytes(tensor.dtype);
    if (source.packing == WeightPacking::fp8) {
      add_flat(*source.values, DType::u8, DType::u8, tensor.elements(), at);
      add_flat(*source.scales, *parameter_type(source.scales->dtype), DType::f32, source.scales->elements(),
               tensor.scales_offset());
    } else if (source.scales) {
      const int64_t row_blocks = tensor.cols / kMxfp4Block;
      add_packed(tensor, *source.values, at, row_blocks * kMxfp4BlockBytes);
      add_packed(tensor, *source.scales, at + tensor.elements() / 2, row_blocks);
    } else {
      add_plain(in_form_of(source.in_other_form, tensor), *source.values, at);
    }
  }

  std::vector<FileSlice> take() { return std::move(slices_); }

 private:
  // The slice of this number of a tensor of the files.
  FileSlice& slice(const StoredTensor& stored, int64_t slices, int64_t index, const FileSlice& made) {
    const auto [known, fresh] = known_.try_emplace({&stored, index}, slices_.size());
    if (!fresh) return slices_[known->second];
    const SafetensorsFile& file = files_.holder_of(stored);
    FileSlice& slice = slices_.emplace_back(made);
    slice.file = &file - files_.files().data();
    slice.offset = file.offset_of(stored) + index * (stored.bytes / slices);
    return slice;
  }

  void add_flat(const StoredTensor& stored, DType from, DType to, int64_t elements, int64_t at) {
    slice(stored, 1, 0, {.lines_are = FileSlice::Lines::flat, .from = from, .to = to, .lines = elements})
        .parts.push_back({.at = at, .rows = 1, .cols = elements});
  }

  void add_plain(const TensorSpec& tensor, const StoredTensor& stored, int64_t at) {
    const Stored& s = tensor.stored;
    const DType from = *parameter_type(stored.dtype);
    using Lines = FileSlice::Lines;
    if (s.name.empty()) return add_flat(stored, from, tensor.dtype, tensor.elements(), at);
    const int64_t rows = tensor.is_vector() ? tensor.cols : tensor.rows, cols = tensor.is_vector() ? 1 : tensor.cols;
    const bool columns = s.transposed || cols == 1;
    slice(stored, s.slices, s.index,
          {.lines_are = columns ? Lines::columns : Lines::rows,
           .from = from,
           .to = tensor.dtype,
           .line = columns ? s.rows : cols,
           .lines = columns ? cols : s.rows})
        .parts.push_back({.at = at, .rows = rows, .cols = cols, .first = s.first_row, .step = s.row_step});
  }

  // Blocks or scales of MXFP4, which are never transposed.
  void add_packed(const TensorSpec& tensor, const StoredTensor& stored, int64_t at, int64_t row_bytes) {
    const Stored& s = tensor.stored;
    slice(stored, s.slices, s.index,
          {.lines_are = FileSlice::Lines::rows, .from = DType::u8, .to = DType::u8, .line = row_bytes, .lines = s.rows})
        .parts.push_back({.at = at, .rows = tensor.rows, .cols = row_bytes, .first = s.first_row, .step = s.row_step});
  }

  const ModelFiles& files_;
  const LayerLayout& layout_;
  std::vector<FileSlice> slices_;
  std::map<std::pair<const StoredTensor*, int64_t>, size_t> known_;
};

// A value that a record cannot hold becomes infinite, so that a check of the record finds it.
bf16 rounded(float value) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu;
  return magnitude < kMasterFiniteBelow ? master_high(value) : bf16{0x7F80};
}

void convert(const FileSlice& slice, const std::byte* data, int64_t count, std::byte* out) {
  if (slice.from == slice.to) {
    std::memcpy(out, data, static_cast<size_t>(count * dtype_bytes(slice.to)));
    return;
  }
  constexpr int64_t kRun = 4096;
  std::array<float, kRun> values;
  for (int64_t at = 0; at < count; at += kRun) {
    const int64_t run = std::min(kRun, count - at);
    widen_to_f32(data + at * dtype_bytes(slice.from), slice.from, run, values.data());
    std::byte* to = out + at * dtype_bytes(slice.to);
    if (slice.to == DType::f32) {
      std::memcpy(to, values.data(), static_cast<size_t>(run) * sizeof(float));
    } else {
      std::transform(values.begin(), values.begin() + run, reinterpret_cast<bf16*>(to), rounded);
    }
  }
}

// Columns [first, first + count) of a part from lines of `line` elements, in tiles that stay in cache. Elements of the
// file may lie at any address.
template <class T>
void place_columns(const FileSlice::Part& part, int64_t line, int64_t first, int64_t count, const std::byte* data,
                   T* out) {
  constexpr int64_t kTile = 32;
  for (int64_t row = 0; row < part.rows; row += kTile) {
    const int64_t last_row = std::min(row + kTile, part.rows);
    for (int64_t col = 0; col < count; col += kTile) {
      const int64_t last_col = std::min(col + kTile, count);
      for (int64_t r = row; r < last_row; ++r) {
        const std::byte* from = data + (part.first + r * part.step) * static_cast<int64_t>(sizeof(T));
        T* to = out + r * part.cols + first;
        for (int64_t c = col; c < last_col; ++c)
          std::memcpy(to + c, from + c * line * static_cast<int64_t>(sizeof(T)), sizeof(T));
      }
    }
  }
}

}  // namespace

std::vector<FileSlice> file_slices(const ModelFiles& files, const LayerLayout& layout) {
  SliceList list(files, layout);
  for (const TensorSpec& tensor : layout.tensors) list.add(tensor);
  return list.take();
}

std::vector<SlicePiece> cut_slices(const std::vector<FileSlice>& slices) {
  std::vector<SlicePiece> pieces;
  for (size_t index = 0; index < slices.size(); ++index) {
    const FileSlice& slice = slices[index];
    const int64_t bytes = slice.line_bytes();
    for (int64_t first = 0, count = 0; first < slice.lines; first += count) {
      // Pieces of single elements end where blocks of the file do, so that no block is read twice.
      const int64_t behind =
          slice.lines_are == FileSlice::Lines::flat ? (slice.offset + first * bytes) % kFileRangeBytes : 0;
      count = std::clamp<int64_t>((kFileRangeBytes - behind) / bytes, 1, slice.lines - first);
      pieces.push_back({.slice = static_cast<int64_t>(index), .first = first, .count = count});
    }
  }
  return pieces;
}

FileRange range_of(const FileSlice& slice, const SlicePiece& piece) {
  return {.file = slice.file,
          .offset = slice.offset + piece.first * slice.line_bytes(),
          .bytes = piece.count * slice.line_bytes()};
}

void place_piece(const FileSlice& slice, const SlicePiece& piece, const std::byte* data, std::byte* out,
                 int64_t out_begin) {
  const int64_t width = dtype_bytes(slice.to);
  switch (slice.lines_are) {
    case FileSlice::Lines::flat:
      return convert(slice, data, piece.count, out + (slice.parts.front().at - out_begin) + piece.first * width);
    case FileSlice::Lines::rows:
      for (const FileSlice::Part& part : slice.parts) {
        for (int64_t i = 0; i < piece.count; ++i) {
          const int64_t behind = piece.first + i - part.first, row = behind / part.step;
          if (behind < 0 || behind % part.step != 0 || row >= part.rows) continue;
          convert(slice, data + i * slice.line_bytes(), slice.line,
                  out + (part.at - out_begin) + row * part.cols * width);
        }
      }
      return;
    case FileSlice::Lines::columns: {
      std::vector<std::byte> converted;
      if (slice.from != slice.to) {
        converted.resize(static_cast<size_t>(piece.count * slice.line * width));
        convert(slice, data, piece.count * slice.line, converted.data());
        data = converted.data();
      }
      for (const FileSlice::Part& part : slice.parts) {
        std::byte* to = out + (part.at - out_begin);
        if (width == 2) {
          place_columns(part, slice.line, piece.first, piece.count, data, reinterpret_cast<uint16_t*>(to));
        } else {
          place_columns(part, slice.line, piece.first, piece.count, data, reinterpret_cast<uint32_t*>(to));
        }
      }
      return;
    }
  }
}

}  // namespace megatrain
