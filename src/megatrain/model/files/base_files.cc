#include "megatrain/model/files/base_files.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "megatrain/base/bf16.h"
#include "megatrain/base/error.h"
#include "megatrain/base/finite.h"
#include "megatrain/base/math.h"
#include "megatrain/host/parallel.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/model/files/file_slices.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/multimodal.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/store/pieces.h"
#include "megatrain/tensor/fp8.h"
#include "megatrain/tensor/mxfp4.h"

namespace megatrain {

namespace {

int64_t stored_at(const LayerLayout& layout, const TensorSpec& tensor) {
  return layout.packed() ? tensor.packed_offset : tensor.offset * dtype_bytes(tensor.dtype);
}

int64_t stored_bytes(const LayerLayout& layout, const TensorSpec& tensor) {
  return layout.packed() ? tensor.packed_bytes() : tensor.elements() * dtype_bytes(tensor.dtype);
}

// The bytes of the stored form that no tensor has.
std::vector<StoredRange> gaps_of(const LayerLayout& layout) {
  std::vector<StoredRange> gaps;
  int64_t end = 0;
  const auto until = [&](int64_t begin) {
    if (begin > end) gaps.push_back({end, begin});
  };
  for (const TensorSpec& tensor : layout.tensors) {
    const int64_t at = stored_at(layout, tensor);
    until(at);
    end = at + stored_bytes(layout, tensor);
    if (!layout.packed() || tensor.packing != WeightPacking::fp8) continue;
    const int64_t codes_end = at + tensor.elements(), scales = tensor.scales_offset();
    if (scales > codes_end) gaps.push_back({codes_end, scales});
  }
  until(layout.stored_bytes());
  return gaps;
}

// Where a piece is placed. Those of one slice lie between each other, unless they are runs of one tensor.
StoredRange extent_of(const FileSlice& slice, const SlicePiece& piece) {
  if (slice.lines_are != FileSlice::Lines::flat) return {slice.begin(), slice.end()};
  const int64_t width = dtype_bytes(slice.to), begin = slice.parts.front().at + piece.first * width;
  return {begin, begin + piece.count * width};
}

// Index of the first of `count` values that is not finite; -1: none. Looks at each value only where some value is not.
int64_t first_not_finite_bf16(const bf16* values, int64_t count) {
  constexpr uint16_t kBelow = kFiniteBelow >> 16;
  uint16_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max<uint16_t>(most, values[i].bits & 0x7FFFu);
  if (most < kBelow) return -1;
  return std::find_if(values, values + count, [](bf16 x) { return (x.bits & 0x7FFFu) >= kBelow; }) - values;
}

// The same for elements [begin, begin + count) of a tensor in MXFP4. Only the largest powers can be too large.
int64_t first_not_finite_mxfp4(const TensorSpec& tensor, const std::byte* weights, int64_t begin, int64_t count) {
  constexpr std::byte kSmall{251};  // 6 * 2^(251 - 127) is finite
  const std::byte* scales = weights + tensor.elements() / 2;
  const std::byte* last = scales + ceil_div(begin + count, kMxfp4Block);
  if (std::none_of(scales + begin / kMxfp4Block, last, [](std::byte scale) { return scale > kSmall; })) return -1;
  std::vector<float> values(static_cast<size_t>(count));
  decode_mxfp4(weights, scales, begin, count, values.data());
  return first_not_finite(values.data(), count, tensor.dtype == DType::bf16 ? kMasterFiniteBelow : kFiniteBelow);
}

// The same for a tensor in its stored form, which `weights` holds.
int64_t first_not_finite_stored(const TensorSpec& tensor, const std::byte* weights, int64_t begin, int64_t count) {
  if (tensor.packing == WeightPacking::mxfp4) return first_not_finite_mxfp4(tensor, weights, begin, count);
  if (tensor.dtype == DType::f32) return first_not_finite(reinterpret_cast<const float*>(weights) + begin, count);
  return first_not_finite_bf16(reinterpret_cast<const bf16*>(weights) + begin, count);
}

}  // namespace

struct BaseFiles::Record {
  std::vector<FileSlice> slices;
  std::vector<SlicePiece> pieces;
  std::vector<FileRange> ranges;  // of the pieces
  std::vector<StoredRange> gaps;
  std::atomic<bool> checked{false};

  const FileSlice& slice_of(const SlicePiece& piece) const { return slices[static_cast<size_t>(piece.slice)]; }
};

BaseFiles::BaseFiles(const std::string& directory, std::vector<LayerLayout> layouts, const std::vector<bool>& wanted,
                     FileReaderOptions options)
    : directory_(directory), layouts_(std::move(layouts)), records_(layouts_.size()) {
  const ModelFiles files = open_model_files(directory);
  for (size_t r = 0; r < layouts_.size(); ++r) {
    if (!wanted[r]) continue;
    Record& record = records_[r];
    record.slices = file_slices(files, layouts_[r]);
    record.pieces = cut_slices(record.slices);
    for (const SlicePiece& piece : record.pieces) record.ranges.push_back(range_of(record.slice_of(piece), piece));
    record.gaps = gaps_of(layouts_[r]);
  }
  std::vector<std::string> paths;
  for (const SafetensorsFile& file : files.files()) paths.push_back(file.path());
  reader_ = std::make_unique<FileReader>(paths, std::move(options));
  for (size_t file = 0; file < paths.size(); ++file) {
    if (reader_->bytes(static_cast<int64_t>(file)) != files.files()[file].bytes())
      fail_io(paths[file] + " changed while its header was read; let nothing change it");
  }
}

BaseFiles::~BaseFiles() = default;

void BaseFiles::fill_gaps(const Record& record, int64_t begin, int64_t bytes, std::byte* out) const {
  const StoredRange asked{begin, begin + bytes};
  for (const StoredRange& gap : record.gaps) {
    const int64_t from = std::max(asked.begin, gap.begin), to = std::min(asked.end, gap.end);
    if (from < to) std::memset(out + (from - begin), 0, static_cast<size_t>(to - from));
  }
}

void BaseFiles::read_whole(int64_t index, std::byte* out, int64_t next) {
  Record& record = records_[static_cast<size_t>(index)];
  fill_gaps(record, 0, layouts_[static_cast<size_t>(index)].stored_bytes(), out);
  std::span<const FileRange> ahead;
  if (next >= 0) ahead = records_[static_cast<size_t>(next)].ranges;
  const auto place = [&](int64_t i, const std::byte* data) {
    const SlicePiece& piece = record.pieces[static_cast<size_t>(i)];
    place_piece(record.slice_of(piece), piece, data, out, 0);
  };
  reader_->read(record.ranges, place, ahead);
  if (!record.checked.exchange(true)) check_finite(index, out);
}

// Reads all pieces that reach into the range. If some reach beyond it, they are placed in memory that holds them all.
void BaseFiles::read(int64_t index, int64_t begin, int64_t bytes, std::byte* out) {
  if (bytes == layouts_[static_cast<size_t>(index)].stored_bytes()) return read_whole(index, out, -1);
  const Record& record = records_[static_cast<size_t>(index)];
  fill_gaps(record, begin, bytes, out);
  std::vector<SlicePiece> pieces;
  std::vector<FileRange> ranges;
  StoredRange reached{begin / kPackedAlignment * kPackedAlignment, begin + bytes};  // elements stay aligned
  for (size_t i = 0; i < record.pieces.size(); ++i) {
    const SlicePiece& piece = record.pieces[i];
    const StoredRange extent = extent_of(record.slice_of(piece), piece);
    if (extent.end <= begin || extent.begin >= begin + bytes) continue;
    reached = {std::min(reached.begin, extent.begin), std::max(reached.end, extent.end)};
    pieces.push_back(piece);
    ranges.push_back(record.ranges[i]);
  }
  const bool within = reached.begin == begin && reached.end == begin + bytes;
  std::vector<std::byte> around(within ? 0 : static_cast<size_t>(reached.end - reached.begin));
  std::byte* to = within ? out : around.data();
  reader_->read(ranges, [&](int64_t i, const std::byte* data) {
    const SlicePiece& piece = pieces[static_cast<size_t>(i)];
    place_piece(record.slice_of(piece), piece, data, to, reached.begin);
  });
  if (!within) std::memcpy(out, around.data() + (begin - reached.begin), static_cast<size_t>(bytes));
}

void BaseFiles::check_finite(int64_t index, const std::byte* weights) const {
  const LayerLayout& layout = layouts_[static_cast<size_t>(index)];
  struct Piece {
    const TensorSpec* tensor;
    int64_t begin, count;
  };
  std::vector<Piece> pieces;
  for (const TensorSpec& tensor : layout.tensors) {
    for (int64_t at = 0; at < tensor.elements(); at += kPiece)
      pieces.push_back({&tensor, at, std::min(kPiece, tensor.elements() - at)});
  }
  parallel_for(0, std::ssize(pieces), [&](int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    if (piece.tensor->packing == WeightPacking::fp8)
      return check_fp8_piece(weights, *piece.tensor, piece.begin, piece.count);
    const std::byte* stored = weights + stored_at(layout, *piece.tensor);
    const int64_t found = first_not_finite_stored(*piece.tensor, stored, piece.begin, piece.count);
    if (found < 0) return;
    const ModelFiles files = open_model_files(directory_);
    const TensorSource source = find_source(files, *piece.tensor);
    float value = 0;
    read_source(source, *piece.tensor, layout.dtype(), piece.begin + found, 1, &value);
    fail_not_finite(files.file_of(*source.values), piece.tensor->name, piece.begin + found, value);
  });
}

void BaseFiles::check_fp8_piece(const std::byte* weights, const TensorSpec& tensor, int64_t begin,
                                int64_t count) const {
  const auto* first = reinterpret_cast<const float*>(weights + tensor.scales_offset());
  const std::span scales(first, static_cast<size_t>(fp8_scales(tensor.rows, tensor.cols)));
  const std::byte* codes = weights + tensor.packed_offset + begin;
  if (begin > 0 || std::ranges::all_of(scales, [](float scale) { return std::isfinite(scale); })) {
    if (first_not_finite_fp8(tensor.dtype, codes, first, tensor.cols, begin, count) < 0) return;
  }
  const ModelFiles files = open_model_files(directory_);
  check_fp8(files, find_source(files, tensor), tensor, tensor.dtype, scales, codes, begin, count);
}

int64_t file_bytes(const LayerLayout& layout, const TensorTypes& stored) {
  int64_t bytes = 0;
  for (const TensorSpec& tensor : layout.tensors) {
    const auto found = stored.find(tensor.name);
    if (found == stored.end()) return 0;
    bytes += tensor.packing == WeightPacking::none ? tensor.elements() * dtype_bytes(found->second.dtype)
                                                   : packed_code_bytes(tensor.packing, tensor.rows, tensor.cols) +
                                                         packed_scale_bytes(tensor.packing, tensor.rows, tensor.cols);
  }
  return bytes;
}

}  // namespace megatrain
