#include "megatrain/store/record.h"

#include <cstring>
#include <utility>

#include "megatrain/base/split_master.h"

namespace megatrain {

StatePlanes StatePlanes::within(std::byte* base, int64_t elements, DType weights) {
  const auto plane = [&base, elements](int64_t bytes) { return std::exchange(base, base + elements * bytes); };
  StatePlanes planes;
  if (weights == DType::bf16) {
    planes.weight = reinterpret_cast<bf16*>(plane(2));
    planes.low = reinterpret_cast<uint16_t*>(plane(2));
  } else {
    planes.master = reinterpret_cast<float*>(plane(4));
  }
  planes.m = reinterpret_cast<float*>(plane(4));
  planes.v = reinterpret_cast<float*>(plane(4));
  return planes;
}

LayerRecord::LayerRecord(Device& device, LayerLayout layout, Tier tier)
    : device_(&device), layout_(std::move(layout)), tier_(tier) {
  const auto plane = [&](int64_t elements, int64_t element, const char* tag) {
    const size_t bytes = static_cast<size_t>(elements * element);
    if (tier_ == Tier::host) return device.allocate_host(bytes, tag);
    Buffer buffer = device.allocate(bytes, "resident state");
    device.zero_now(buffer.data(), buffer.bytes());
    return buffer;
  };
  weights_ = plane(layout_.elements, dtype_bytes(dtype()), "weights");
  if (layout_.master() != dtype()) low_ = plane(layout_.elements, 2, "low bits");
  m_ = plane(layout_.state_elements, 4, "first moments");
  v_ = plane(layout_.state_elements, 4, "second moments");
}

StatePlanes LayerRecord::planes() const {
  const bool split = dtype() == DType::bf16;
  return {.weight = split ? reinterpret_cast<bf16*>(weights_.data()) : nullptr,
          .low = reinterpret_cast<uint16_t*>(low_.data()),
          .master = split ? nullptr : reinterpret_cast<float*>(weights_.data()),
          .m = reinterpret_cast<float*>(m_.data()),
          .v = reinterpret_cast<float*>(v_.data())};
}

void LayerRecord::copy(void* to, const void* from, size_t bytes) const {
  if (tier_ == Tier::hbm) return device_->copy_now(to, from, bytes);
  std::memcpy(to, from, bytes);
}

void LayerRecord::read_master(int64_t begin, int64_t count, float* out) const {
  const StatePlanes at = planes();
  const size_t n = static_cast<size_t>(count);
  if (dtype() == DType::f32) return copy(out, at.master + begin, n * 4);
  std::vector<bf16> high(n);
  std::vector<uint16_t> low(n);
  copy(high.data(), at.weight + begin, n * 2);
  if (at.low) copy(low.data(), at.low + begin, n * 2);
  for (size_t i = 0; i < n; ++i) out[i] = join_master(high[i], low[i]);
}

void LayerRecord::write_master(int64_t begin, int64_t count, const float* values) {
  const StatePlanes at = planes();
  const size_t n = static_cast<size_t>(count);
  if (dtype() == DType::f32) return copy(at.master + begin, values, n * 4);
  std::vector<bf16> high(n);
  std::vector<uint16_t> low(n);
  for (size_t i = 0; i < n; ++i) {
    high[i] = master_high(values[i]);
    low[i] = master_low(values[i]);
  }
  copy(at.weight + begin, high.data(), n * 2);
  if (at.low) copy(at.low + begin, low.data(), n * 2);
}

void LayerRecord::read_moment(Moment moment, int64_t begin, int64_t count, float* out) const {
  copy(out, moment_plane(moment).data() + begin * 4, static_cast<size_t>(count) * 4);
}

void LayerRecord::write_moment(Moment moment, int64_t begin, int64_t count, const float* values) {
  copy(moment_plane(moment).data() + begin * 4, values, static_cast<size_t>(count) * 4);
}

std::vector<LayerRecord> make_records(Device& device, const std::vector<LayerLayout>& layouts,
                                      const std::vector<Tier>& tiers) {
  std::vector<LayerRecord> records;
  records.reserve(layouts.size());
  for (size_t i = 0; i < layouts.size(); ++i) records.emplace_back(device, layouts[i], tiers[i]);
  return records;
}

}  // namespace megatrain
