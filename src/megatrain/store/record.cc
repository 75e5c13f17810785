#include "megatrain/store/record.h"

#include <cstring>

#include "megatrain/base/split_master.h"

namespace megatrain {

LayerRecord::LayerRecord(Device& device, LayerLayout layout, DType weights)
    : layout_(std::move(layout)), dtype_(weights) {
  const size_t n = static_cast<size_t>(layout_.elements);
  weights_ = device.allocate_host(n * static_cast<size_t>(dtype_bytes(dtype_)), "weights");
  if (dtype_ == DType::bf16) low_ = device.allocate_host(n * 2, "low bits");
  m_ = device.allocate_host(n * 4, "first moments");
  v_ = device.allocate_host(n * 4, "second moments");
}

void LayerRecord::read_master(int64_t begin, int64_t count, float* out) const {
  if (dtype_ == DType::f32) {
    std::memcpy(out, master() + begin, static_cast<size_t>(count) * 4);
    return;
  }
  const bf16* high = weights_bf16() + begin;
  const uint16_t* low_bits = low() + begin;
  for (int64_t i = 0; i < count; ++i) out[i] = join_master(high[i], low_bits[i]);
}

void LayerRecord::write_master(int64_t begin, int64_t count, const float* values) {
  if (dtype_ == DType::f32) {
    std::memcpy(master() + begin, values, static_cast<size_t>(count) * 4);
    return;
  }
  bf16* high = weights_bf16() + begin;
  uint16_t* low_bits = low() + begin;
  for (int64_t i = 0; i < count; ++i) {
    high[i] = master_high(values[i]);
    low_bits[i] = master_low(values[i]);
  }
}

std::vector<LayerRecord> make_records(Device& device, const std::vector<LayerLayout>& layouts, DType weights) {
  std::vector<LayerRecord> records;
  records.reserve(layouts.size());
  for (const LayerLayout& layout : layouts) records.emplace_back(device, layout, weights);
  return records;
}

}  // namespace megatrain
