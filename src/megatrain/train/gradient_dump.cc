#include "megatrain/train/gradient_dump.h"

#include <algorithm>

#include "megatrain/hub/convert.h"
#include "megatrain/train/state_files.h"

namespace megatrain {

GradientDump::GradientDump(const std::string& path, int64_t step, const std::vector<LayerRecord>& records)
    : records_(records) {
  std::vector<TensorDeclaration> tensors;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (tensor.trainable) tensors.push_back({tensor.name, DType::f32, tensor_shape(tensor)});
    }
  }
  writer_ = std::make_unique<SafetensorsWriter>(
      path, std::move(tensors), std::map<std::string, std::string>{{"format", "pt"}, {"step", std::to_string(step)}});
}

void GradientDump::record(int64_t index, const HostGradient& gradient) {
  const LayerRecord& record = records_[static_cast<size_t>(index)];
  const DType dtype = record.layout().gradient_dtype();
  const int64_t element = dtype_bytes(dtype);
  if (gradient.rows) {
    const TensorSpec& table = record.layout().tensors.front();
    auto next = gradient.rows->begin();
    scratch_.resize(static_cast<size_t>(table.cols));
    for (int64_t row = 0; row < table.rows; ++row) {
      if (next != gradient.rows->end() && *next == row) {
        widen_to_f32(gradient.data + (next - gradient.rows->begin()) * table.cols * element, dtype, table.cols,
                     scratch_.data());
        ++next;
      } else {
        std::fill(scratch_.begin(), scratch_.end(), 0.0f);
      }
      writer_->write_f32(table.name, row * table.cols, scratch_.data(), table.cols);
    }
    return;
  }
  constexpr int64_t kPiece = int64_t{1} << 20;
  scratch_.resize(static_cast<size_t>(kPiece));
  for (const TensorSpec& tensor : record.layout().tensors) {
    if (!tensor.trainable) continue;
    for (int64_t at = 0; at < tensor.elements(); at += kPiece) {
      const int64_t count = std::min(kPiece, tensor.elements() - at);
      widen_to_f32(gradient.data + (tensor.state_offset + at) * element, dtype, count, scratch_.data());
      writer_->write_f32(tensor.name, at, scratch_.data(), count);
    }
  }
}

}  // namespace megatrain
