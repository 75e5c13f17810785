#include "megatrain/gguf/write_gguf_adapter.h"

#include <algorithm>

#include "megatrain/gguf/architecture.h"
#include "megatrain/gguf/gguf_file.h"
#include "megatrain/gguf/tensor_map.h"

namespace megatrain {

namespace {

GgufMetadata metadata_of(const GgufAdapterRequest& request) {
  GgufMetadata of_model;
  add_architecture(request.model, of_model);  // refuses what llama.cpp would compute differently
  GgufMetadata metadata;
  metadata.add("general.architecture", std::string(gguf_family(request.model).name));
  metadata.add("general.type", std::string("adapter"));
  metadata.add("general.name", request.name);
  metadata.add("general.file_type", gguf_file_type(request.type));
  metadata.add("general.quantization_version", kQuantizationVersion);
  metadata.add("adapter.type", std::string("lora"));
  metadata.add("adapter.lora.alpha", static_cast<float>(request.alpha));
  return metadata;
}

// What the B half is multiplied by, so that llama.cpp's alpha / rank comes to the adapter's own scale.
float factor_of(const TensorSpec& half, double alpha) {
  if (half.role != TensorRole::adapter_out) return 1;
  return half.adapter.scale / static_cast<float>(alpha / static_cast<double>(half.cols));
}

std::vector<float> in_file_order(const GgufTensor& tensor, const std::vector<float>& values, float factor) {
  const int64_t cols = tensor.parts.front()->cols, rows = tensor.parts.front()->rows;
  std::vector<float> ordered(values.size());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t from = tensor.pair_rows > 0 ? row_of_pairs(row, tensor.pair_rows) : row;
    std::transform(values.begin() + from * cols, values.begin() + (from + 1) * cols, ordered.begin() + row * cols,
                   [factor](float value) { return value * factor; });
  }
  return ordered;
}

}  // namespace

GgufReport write_gguf_adapter(const GgufAdapterRequest& request,
                              const std::map<std::string, std::vector<float>>& values) {
  const GgufMetadata metadata = metadata_of(request);
  std::vector<GgufTensor> tensors;
  std::vector<GgufTensorEntry> entries;
  for (const TensorSpec* half : request.halves) {
    tensors.push_back(gguf_adapter_tensor(request.model, *half, request.type));
    entries.push_back(tensors.back().entry);
  }
  GgufFile file(request.path, metadata, entries);
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& half = *tensors[i].parts.front();
    const std::vector<float> ordered = in_file_order(tensors[i], values.at(half.name), factor_of(half, request.alpha));
    encode_gguf(ordered.data(), std::ssize(ordered), tensors[i].entry.type, tensors[i].entry.name, bytes);
    file.write(i, bytes);
  }
  file.finish();
  return {file.bytes(), std::ssize(tensors), gguf_family(request.model).name};
}

}  // namespace megatrain
