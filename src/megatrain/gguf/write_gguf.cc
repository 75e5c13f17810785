#include "megatrain/gguf/write_gguf.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/base/work_progress.h"
#include "megatrain/gguf/architecture.h"
#include "megatrain/gguf/gguf_file.h"
#include "megatrain/gguf/tensor_map.h"
#include "megatrain/gguf/vocabulary.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceElements = int64_t{1} << 20;

GgufMetadata metadata_of(const GgufRequest& request, const ModelText& text) {
  GgufMetadata metadata;
  add_architecture(request.model, metadata);
  metadata.add("general.type", std::string("model"));
  metadata.add("general.name", name_for_llama(request.name, text));
  metadata.add("general.file_type", gguf_file_type(request.type));
  metadata.add("general.quantization_version", kQuantizationVersion);
  add_vocabulary(text, request.model.vocab, metadata);
  return metadata;
}

void check_room(const std::string& path, const std::vector<GgufTensor>& tensors) {
  int64_t bytes = 0;
  for (const GgufTensor& tensor : tensors) bytes += tensor.entry.bytes();
  std::error_code error;
  const fs::space_info space = fs::space(parent_directory(path), error);
  if (error || static_cast<int64_t>(std::min<uintmax_t>(space.available, INT64_MAX)) >= bytes) return;
  fail_io(fmt::format("{} needs {} and {} has {} left; make room, or give --out a place on another disk", path,
                      format_bytes(bytes), parent_directory(path),
                      format_bytes(static_cast<int64_t>(space.available))));
}

// Reads rows [begin, begin + count) of a part, in the order of the GGUF file.
void read_rows(const GgufTensor& tensor, const TensorSpec& part, int64_t row_elements, int64_t begin, int64_t count,
               const PartReader& read, std::vector<float>& values) {
  values.resize(static_cast<size_t>(count * row_elements));
  if (tensor.pair_rows == 0) {
    read(part, begin * row_elements, count * row_elements, values.data());
  } else {
    for (int64_t row = 0; row < count; ++row)
      read(part, row_of_pairs(begin + row, tensor.pair_rows) * row_elements, row_elements,
           values.data() + row * row_elements);
  }
  if (tensor.add != 0) {
    for (float& value : values) value += tensor.add;
  }
}

}  // namespace

GgufReport write_gguf(const GgufRequest& request, const ModelText& text, const PartReader& read,
                      const std::function<void(const TensorSpec&)>& done) {
  const GgufMetadata metadata = metadata_of(request, text);
  const std::vector<GgufTensor> tensors = gguf_tensors(request.model, request.tensors, request.type);
  std::vector<GgufTensorEntry> entries;
  int64_t elements = 0;
  for (const GgufTensor& tensor : tensors) {
    entries.push_back(tensor.entry);
    elements += tensor.entry.elements();
  }
  check_room(request.path, tensors);
  GgufFile file(request.path, metadata, entries);
  WorkProgress progress("writing " + request.path, elements);
  std::vector<float> values;
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const GgufTensor& tensor = tensors[i];
    const auto put = [&](const std::vector<float>& piece) {
      encode_gguf(piece.data(), std::ssize(piece), tensor.entry.type, tensor.entry.name, bytes);
      file.write(i, bytes);
      progress.add(std::ssize(piece));
    };
    if (tensor.parts.empty()) put(tensor.values);
    for (const TensorSpec* part : tensor.parts) {
      // A vector is treated as rows of one element: it is never quantised, so no block is split.
      const int64_t row_elements = part->is_vector() ? 1 : part->cols;
      const int64_t rows = part->elements() / row_elements, step = std::max<int64_t>(1, kPieceElements / row_elements);
      for (int64_t begin = 0; begin < rows; begin += step) {
        read_rows(tensor, *part, row_elements, begin, std::min(step, rows - begin), read, values);
        put(values);
      }
      done(*part);
    }
  }
  file.finish();
  return {file.bytes(), std::ssize(tensors), gguf_family(request.model).name};
}

}  // namespace megatrain
