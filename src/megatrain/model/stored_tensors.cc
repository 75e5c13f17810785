#include "megatrain/model/stored_tensors.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/host/parallel.h"
#include "megatrain/hub/convert.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/fp8_tensors.h"
#include "megatrain/store/pieces.h"
#include "megatrain/tensor/fp8.h"
#include "megatrain/tensor/mxfp4.h"

namespace megatrain {

namespace {

int64_t row_size(const TensorSpec& tensor) { return tensor.is_vector() ? 1 : tensor.cols; }

int64_t slice_elements(const TensorSpec& tensor) { return tensor.stored.rows * row_size(tensor); }

// Whether the slices of the larger tensor are columns of it.
bool slices_are_columns(const TensorSpec& tensor) { return tensor.role == TensorRole::adapter_out; }

// The offset of an element of the tensor within its slice; if slices are columns, within the larger tensor.
int64_t place(const TensorSpec& tensor, int64_t row, int64_t col) {
  const Stored& s = tensor.stored;
  if (slices_are_columns(tensor)) {
    const int64_t at = row * s.row_step % s.rows + row * s.row_step / s.rows;
    return at * tensor.cols * s.slices + col * s.slices + s.index;
  }
  const int64_t at = s.first_row + row * s.row_step;
  return s.transposed && !tensor.is_adapter() ? col * s.rows + at : at * row_size(tensor) + col;
}

// The elements of a piece of a larger tensor.
int64_t piece_elements(const TensorSpec& tensor) {
  return slice_elements(tensor) * (slices_are_columns(tensor) ? tensor.stored.slices : 1);
}

}  // namespace

const std::string& file_name(const TensorSpec& tensor) {
  return tensor.stored.name.empty() ? tensor.name : tensor.stored.name;
}

std::vector<int64_t> file_shape(const TensorSpec& tensor) {
  const Stored& s = tensor.stored;
  if (s.name.empty()) return tensor_shape(tensor);
  if (tensor.role == TensorRole::adapter_in) return {s.slices * s.rows, tensor.cols};
  if (slices_are_columns(tensor)) return {s.rows, tensor.cols * s.slices};
  if (tensor.is_vector()) return {s.slices, s.rows};
  return s.transposed ? std::vector<int64_t>{s.slices, tensor.cols, s.rows}
                      : std::vector<int64_t>{s.slices, s.rows, tensor.cols};
}

namespace {

// If an expert of a layer is missing, throws an error that describes the experts that the files have.
void refuse_missing_expert(const ModelFiles& files, const TensorSpec& tensor) {
  const std::string prefix = experts_prefix(tensor.name);
  if (prefix.empty() || files.find(tensor.name) != nullptr) return;
  const size_t end = tensor.name.find('.', prefix.size());
  const std::string part = tensor.name.substr(std::min(end, tensor.name.size()));
  int64_t held = 0;
  for (const StoredTensor* stored : files.tensors()) {
    if (!stored->name.starts_with(prefix)) continue;
    if (stored->name.ends_with("gate_up_proj"))
      fail_input(fmt::format(
          "{}: {} holds all experts of its layer, which megatrain does not read for this architecture; save "
          "the model with transformers' save_pretrained, which writes them one by one.",
          files.file_of(*stored), stored->name));
    if (stored->name.ends_with(part)) ++held;
  }
  if (held > 0)
    fail_input(fmt::format(
        "{} has no tensor {}, though it has that of {} other experts of this layer; config.json asks for more experts "
        "than the weights have, or a file is missing.",
        files.path(), tensor.name, held));
}

const StoredTensor& find_bytes(const ModelFiles& files, const std::string& name, const std::vector<int64_t>& shape) {
  const StoredTensor* found = files.find(name);
  if (found == nullptr)
    fail_input(
        fmt::format("{} has no tensor {}; MXFP4 weights are a tensor of blocks and one of scales: download it "
                    "again.",
                    files.path(), name));
  if (found->dtype != StoredType::u8 || found->shape != shape)
    fail_input(fmt::format(
        "{}: tensor {} is {} of shape {}, but config.json asks for U8 of shape {}; check that "
        "config.json and weights belong together.",
        files.file_of(*found), name, stored_type_name(found->dtype), format_shape(found->shape), format_shape(shape)));
  return *found;
}

}  // namespace

std::vector<int64_t> tensor_shape(const TensorSpec& tensor) {
  if (tensor.role == TensorRole::filter) return {tensor.rows, 1, tensor.cols};
  return tensor.is_vector() ? std::vector<int64_t>{tensor.cols} : std::vector<int64_t>{tensor.rows, tensor.cols};
}

std::string experts_prefix(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.find(kExperts);
  return at == std::string::npos ? "" : name.substr(0, at + kExperts.size());
}

std::vector<std::string> TensorSource::names() const {
  return scales ? std::vector<std::string>{values->name, scales->name} : std::vector<std::string>{values->name};
}

TensorSource find_source(const ModelFiles& files, const TensorSpec& tensor) {
  const Stored& s = tensor.stored;
  if (const StoredTensor* scales = find_fp8_scales(files, tensor))
    return {.values = files.find(tensor.name), .scales = scales, .packing = WeightPacking::fp8};
  if (s.name.empty()) {
    const TensorSource other{.values = files.find(tensor.or_stored.name), .in_other_form = true};
    if (other.values != nullptr) {
      if (const StoredTensor* whole = files.find(tensor.name))
        fail_input(fmt::format("{}: {} is stored twice, by itself and in {}: remove the wrong ones.",
                               files.file_of(*whole), tensor.name, tensor.or_stored.name));
      static_cast<void>(files.parameter(tensor.or_stored.name, file_shape(in_form_of(true, tensor))));  // checks it
      return other;
    }
    refuse_missing_expert(files, tensor);
    return {.values = &files.parameter(tensor.name, tensor_shape(tensor))};
  }
  const std::string blocks = s.name + "_blocks", scales = s.name + "_scales";
  if (!s.mxfp4 || (files.find(blocks) == nullptr && files.find(scales) == nullptr))
    return {.values = &files.parameter(s.name, file_shape(tensor))};
  if (const StoredTensor* plain = files.find(s.name))
    fail_input(fmt::format("{}: {} is stored twice, plainly and in MXFP4 ({}, {}): remove the wrong ones.",
                           files.file_of(*plain), s.name, blocks, scales));
  if (tensor.cols % kMxfp4Block != 0)
    fail_input(
        fmt::format("{}: {} is in MXFP4, whose blocks have {} numbers, but config.json makes its rows {} long; "
                    "check that config.json and weights belong together.",
                    files.path(), s.name, kMxfp4Block, tensor.cols));
  const int64_t row_blocks = tensor.cols / kMxfp4Block;
  return {.values = &find_bytes(files, blocks, {s.slices, s.rows, row_blocks, kMxfp4BlockBytes}),
          .scales = &find_bytes(files, scales, {s.slices, s.rows, row_blocks}),
          .packing = WeightPacking::mxfp4};
}

TensorSpec in_form_of(bool other_form, const TensorSpec& tensor) {
  TensorSpec stored = tensor;
  if (other_form) stored.stored = tensor.or_stored;
  return stored;
}

std::vector<float> read_fp8_scales(const TensorSource& source) {
  std::vector<float> scales(static_cast<size_t>(source.scales->elements()));
  read_as_f32(*source.scales, 0, source.scales->elements(), scales.data());
  return scales;
}

void read_source(const TensorSource& source, const TensorSpec& of, DType dtype, int64_t begin, int64_t count,
                 float* out) {
  const TensorSpec tensor = in_form_of(source.in_other_form, of);
  const Stored& s = tensor.stored;
  if (source.packing == WeightPacking::fp8)
    return decode_fp8(dtype, source.values->data + begin, read_fp8_scales(source).data(), tensor.cols, begin, count,
                      out);
  if (s.name.empty()) return read_as_f32(*source.values, begin, count, out);
  const int64_t cols = row_size(tensor), end = begin + count;
  if (source.scales) {
    const int64_t row_bytes = cols / kMxfp4Block * kMxfp4BlockBytes, row_scales = cols / kMxfp4Block;
    for (int64_t at = begin; at < end;) {
      const int64_t row = at / cols, col = at % cols, run = std::min(cols - col, end - at);
      const int64_t stored = s.index * s.rows + s.first_row + row * s.row_step;
      decode_mxfp4(source.values->data + stored * row_bytes, source.scales->data + stored * row_scales, col, run,
                   out + (at - begin));
      at += run;
    }
    return;
  }
  if (slices_are_columns(tensor)) {
    for (int64_t at = begin; at < end; ++at)
      read_as_f32(*source.values, place(tensor, at / cols, at % cols), 1, out + (at - begin));
    return;
  }
  const int64_t slice = s.index * slice_elements(tensor);
  if ((s.transposed && !tensor.is_adapter()) || cols == 1) {  // the rows of a column are contiguous or row_step apart
    std::vector<float> line(static_cast<size_t>(((count - 1) / cols + 2) * s.row_step));
    for (int64_t col = 0; col < cols; ++col) {
      const int64_t first = ceil_div(std::max<int64_t>(begin - col, 0), cols), last = ceil_div(end - col, cols);
      if (first >= last) continue;
      read_as_f32(*source.values, slice + place(tensor, first, col), (last - 1 - first) * s.row_step + 1, line.data());
      for (int64_t row = first; row < last; ++row)
        out[row * cols + col - begin] = line[static_cast<size_t>((row - first) * s.row_step)];
    }
    return;
  }
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / cols, col = at % cols, run = std::min(cols - col, end - at);
    read_as_f32(*source.values, slice + place(tensor, row, col), run, out + (at - begin));
    at += run;
  }
}

void release_source(const TensorSource& source, const TensorSpec& of) {
  const TensorSpec tensor = in_form_of(source.in_other_form, of);
  for (const StoredTensor* stored : {source.values, source.scales}) {
    if (stored == nullptr) continue;
    StoredTensor part = *stored;
    if (!tensor.stored.name.empty()) {
      part.bytes /= tensor.stored.slices;
      part.data += tensor.stored.index * part.bytes;
    }
    release_pages(part);
  }
}

void release_source(const TensorSource& source, const TensorSpec& of, int64_t begin, int64_t count) {
  if (in_form_of(source.in_other_form, of).stored.name.empty()) release_pages(*source.values, begin, count);
  if (begin + count == of.elements()) release_source(source, of);  // and pages that two pieces share
}

std::vector<FileTensor> file_tensors(const std::vector<const TensorSpec*>& tensors) {
  std::vector<FileTensor> files;
  std::map<std::string, size_t> known;
  for (const TensorSpec* tensor : tensors) {
    const std::string& name = file_name(*tensor);
    const auto [at, fresh] = known.emplace(name, files.size());
    if (fresh) files.push_back({.name = name, .shape = file_shape(*tensor), .parts = {}});
    files[at->second].parts.push_back(tensor);
  }
  for (FileTensor& file : files) {
    std::stable_sort(file.parts.begin(), file.parts.end(),
                     [](const TensorSpec* a, const TensorSpec* b) { return a->stored.index < b->stored.index; });
    const TensorSpec& first = *file.parts.front();
    int64_t elements = 0;
    for (const TensorSpec* part : file.parts) elements += part->elements();
    ensure(!file.fused() || elements == first.stored.slices * slice_elements(first),
           "a file's tensor has all its parts");
  }
  return files;
}

std::vector<FilePiece> cut_file_tensor(const FileTensor& tensor) {
  const TensorSpec& first = *tensor.parts.front();
  const int64_t step = tensor.fused() ? piece_elements(first) : kPiece;
  const int64_t elements = tensor.fused() ? first.stored.slices * slice_elements(first) : first.elements();
  std::vector<FilePiece> pieces;
  for (int64_t at = 0; at < elements; at += step) pieces.push_back({&tensor, at, std::min(step, elements - at)});
  return pieces;
}

namespace {

// Writes elements [begin, begin + count) of a part to their places in a slice, in tiles that stay in cache.
template <class T>
void scatter(const TensorSpec& part, int64_t begin, int64_t count, const T* values, T* slice) {
  constexpr int64_t kTile = 32;
  const int64_t cols = row_size(part), end = begin + count, rows = ceil_div(end, cols);
  for (int64_t tile = 0; tile < cols; tile += kTile) {
    for (int64_t row = begin / cols; row < rows; ++row) {
      const int64_t first = std::max(tile, begin - row * cols);
      const int64_t last = std::min({tile + kTile, cols, end - row * cols});
      for (int64_t col = first; col < last; ++col) slice[place(part, row, col)] = values[row * cols + col - begin];
    }
  }
}

}  // namespace

std::vector<std::byte> piece_bytes(const FilePiece& piece, DType type, const PartReader& read) {
  const int64_t width = dtype_bytes(type);
  std::vector<std::byte> bytes(static_cast<size_t>(piece.count * width));
  std::vector<float> values(static_cast<size_t>(std::min(piece.count, kPiece)));
  if (!piece.tensor->fused()) {
    read(*piece.tensor->parts.front(), piece.begin, piece.count, values.data());
    write_from_f32(values.data(), piece.count, type, bytes.data());
    return bytes;
  }
  std::vector<std::byte> narrow(values.size() * static_cast<size_t>(width));
  for (const TensorSpec* part : piece.tensor->parts) {
    if (!slices_are_columns(*part) && part->stored.index != piece.begin / piece.count) continue;
    for (int64_t at = 0; at < part->elements(); at += kPiece) {
      const int64_t count = std::min(kPiece, part->elements() - at);
      read(*part, at, count, values.data());
      write_from_f32(values.data(), count, type, narrow.data());
      if (width == 2) {
        scatter(*part, at, count, reinterpret_cast<const uint16_t*>(narrow.data()),
                reinterpret_cast<uint16_t*>(bytes.data()));
      } else {
        scatter(*part, at, count, reinterpret_cast<const uint32_t*>(narrow.data()),
                reinterpret_cast<uint32_t*>(bytes.data()));
      }
    }
  }
  return bytes;
}

int piece_team(const std::vector<FileTensor>& tensors, int threads) {
  int64_t most = kPieceScratchBytes;
  for (const FileTensor& tensor : tensors) {
    if (tensor.fused()) most = std::max(most, 4 * piece_elements(*tensor.parts.front()) + 8 * kPiece);
  }
  const int team = team_size(threads);
  return static_cast<int>(std::max<int64_t>(1, team * kPieceScratchBytes / most));
}

std::string unquantised_config(const std::string& text, DType type) {
  constexpr const char* kField = "quantization_config";
  nlohmann::json object = parse_json(text, "config.json", "expected a Hugging Face config.json");
  if (!object.contains(kField)) return text;
  const nlohmann::json& field = object.at(kField);
  const bool fp8 = field.is_object() && field.value("quant_method", nlohmann::json()) == "fp8";
  if (!field.is_null())
    log_info(fmt::format("the export holds the {} in {} and not in {}: its config.json has no {}",
                         fp8 ? "weights" : "experts", dtype_name(type),
                         packing_name(fp8 ? WeightPacking::fp8 : WeightPacking::mxfp4), kField));
  object.erase(kField);
  return json_text(object, 2) + "\n";
}

}  // namespace megatrain
