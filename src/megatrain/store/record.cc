#include "megatrain/store/record.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/base/split_master.h"
#include "megatrain/io/scratch_file.h"
#include "megatrain/store/weight_source.h"
#include "megatrain/tensor/moment_codes.h"

namespace megatrain {

StatePlanes StatePlanes::within(std::byte* base, const LayerLayout& layout) {
  const auto plane = [&base](int64_t bytes) { return std::exchange(base, base + bytes); };
  const int64_t elements = layout.state_elements;
  StatePlanes planes{.moments = layout.moments, .scales_offset = layout.scales_offset()};
  if (layout.dtype() == DType::bf16) {
    planes.weight = reinterpret_cast<bf16*>(plane(2 * elements));
    if (layout.master() != layout.dtype()) planes.low = reinterpret_cast<uint16_t*>(plane(2 * elements));
  } else {
    planes.master = reinterpret_cast<float*>(plane(4 * elements));
  }
  planes.m = plane(layout.moment_bytes());
  planes.v = plane(layout.moment_bytes());
  return planes;
}

CodedState StatePlanes::coded(const TensorSpec& tensor, int64_t begin) const {
  CodedState coded{.moments = moments, .name_hash = tensor.name_hash(), .first = begin};
  if (tensor.block_row() < tensor.elements()) coded.row = tensor.block_row();
  if (moments != MomentFormat::int8) return coded;
  const int64_t at = scales_offset + 4 * (tensor.first_block + tensor.block_of(begin));
  coded.m_scales = reinterpret_cast<float*>(m + at);
  coded.v_scales = reinterpret_cast<float*>(v + at);
  return coded;
}

namespace {

// Zeroed memory on a tier.
Buffer zeroed(Device& device, Tier tier, int64_t bytes, const char* tag) {
  const auto size = static_cast<size_t>(bytes);
  if (tier == Tier::host) return device.allocate_host(size, tag);
  Buffer buffer = device.allocate(size, "resident state");
  device.zero_now(buffer.data(), buffer.bytes());
  return buffer;
}

// One plane of a record, in memory.
struct PlaneNeed {
  const char* tag;
  Buffer PlaneBuffers::*buffer;
  int64_t bytes;  // 0: on disk, or the plane does not exist
};

std::array<PlaneNeed, 4> plane_needs(const LayerLayout& layout, const DiskPlanes& disk) {
  const auto need = [](int64_t on_disk, int64_t bytes) { return on_disk < 0 ? round_up(bytes, kPlaneAlignment) : 0; };
  const int64_t weights = disk.source ? 0 : need(disk.weights, layout.stored_bytes());
  return {{{"weights", &PlaneBuffers::weights, weights},
           {"low bits", &PlaneBuffers::low, need(disk.low, layout.low_elements * 2)},
           {"first moments", &PlaneBuffers::m, need(disk.m, layout.moment_bytes())},
           {"second moments", &PlaneBuffers::v, need(disk.v, layout.moment_bytes())}}};
}

// Memory shared by small planes of one kind and tier. All are counted first; then each takes its part.
class SharedPlanes {
 public:
  void count(int64_t bytes) { bytes_ += bytes; }
  Buffer take(Device& device, Tier tier, int64_t bytes, const char* tag) {
    if (!memory_) memory_ = std::make_shared<Buffer>(zeroed(device, tier, bytes_, tag));
    std::byte* data = memory_->data() + std::exchange(taken_, taken_ + bytes);
    return {data, static_cast<size_t>(bytes), [memory = memory_](void*, size_t) {}};
  }

 private:
  int64_t bytes_ = 0, taken_ = 0;
  std::shared_ptr<Buffer> memory_;
};

PlaneBuffers own_planes(Device& device, const LayerLayout& layout, Tier tier, const DiskPlanes& disk) {
  PlaneBuffers planes;
  for (const PlaneNeed& need : plane_needs(layout, disk)) {
    if (need.bytes > 0) planes.*need.buffer = zeroed(device, tier, need.bytes, need.tag);
  }
  return planes;
}

}  // namespace

LayerRecord::LayerRecord(Device& device, LayerLayout layout, Tier tier, const DiskPlanes& disk)
    : LayerRecord(device, layout, tier, disk, own_planes(device, layout, tier, disk)) {}

LayerRecord::LayerRecord(Device& device, LayerLayout layout, Tier tier, const DiskPlanes& disk, PlaneBuffers planes)
    : device_(&device),
      layout_(std::move(layout)),
      tier_(tier),
      disk_(disk),
      weights_(std::move(planes.weights)),
      low_(std::move(planes.low)),
      m_(std::move(planes.m)),
      v_(std::move(planes.v)) {}

LayerRecord::LayerRecord(const LayerRecord& home, LayerLayout layout)
    : device_(home.device_), layout_(std::move(layout)), tier_(home.tier_), disk_(home.disk_) {
  ensure(layout_.stored_bytes() == home.layout_.stored_bytes() && layout_.elements == home.layout_.elements &&
             layout_.state_elements == home.layout_.state_elements && layout_.low_elements == home.layout_.low_elements,
         "a record shares the memory of one of its own size");
  const auto shared = [](const Buffer& buffer) { return Buffer(buffer.data(), buffer.bytes(), [](void*, size_t) {}); };
  weights_ = shared(home.weights_);
  low_ = shared(home.low_);
  m_ = shared(home.m_);
  v_ = shared(home.v_);
}

StatePlanes LayerRecord::planes() const {
  const bool narrow = dtype() == DType::bf16;
  ensure(!weights_in_files() && !packed(), "nothing of a record that is packed or in files is updated or looked up");
  return {.weight = narrow ? reinterpret_cast<bf16*>(weights_.data()) : nullptr,
          .low = reinterpret_cast<uint16_t*>(low_.data()),
          .master = narrow ? nullptr : reinterpret_cast<float*>(weights_.data()),
          .m = m_.data(),
          .v = v_.data(),
          .moments = layout_.moments,
          .scales_offset = layout_.scales_offset()};
}

void LayerRecord::copy(void* to, const void* from, size_t bytes) const {
  if (tier_ == Tier::hbm) return device_->copy_now(to, from, bytes);
  std::memcpy(to, from, bytes);
}

void LayerRecord::read_master(const TensorSpec& tensor, int64_t begin, int64_t count, float* out) const {
  const size_t n = static_cast<size_t>(count);
  if (dtype() == DType::f32) return read_elements(tensor, begin, count, out);
  std::vector<bf16> high(n);
  std::vector<uint16_t> low(n);
  read_elements(tensor, begin, count, high.data());
  if (tensor.has_low_bits()) read_plane(low_, disk_.low, 2 * (tensor.low_offset + begin), 2 * count, low.data());
  for (size_t i = 0; i < n; ++i) out[i] = join_master(high[i], low[i]);
}

void LayerRecord::write_master(const TensorSpec& tensor, int64_t begin, int64_t count, const float* values) {
  const size_t n = static_cast<size_t>(count);
  if (dtype() == DType::f32) return write_elements(tensor, begin, count, values);
  std::vector<bf16> high(n);
  std::vector<uint16_t> low(n);
  uint16_t any = 0;
  for (size_t i = 0; i < n; ++i) {
    high[i] = master_high(values[i]);
    low[i] = master_low(values[i]);
    any |= low[i];
  }
  ensure(!tensor.exact || any == 0, "a frozen tensor without low bits gets values that bf16 holds");
  write_elements(tensor, begin, count, high.data());
  if (tensor.has_low_bits()) write_plane(low_, disk_.low, 2 * (tensor.low_offset + begin), 2 * count, low.data());
}

namespace {

void to_floats(DType dtype, const void* elements, int64_t count, float* out) {
  if (dtype == DType::f32) {
    std::memcpy(out, elements, static_cast<size_t>(4 * count));
  } else {
    std::transform(static_cast<const bf16*>(elements), static_cast<const bf16*>(elements) + count, out,
                   [](bf16 x) { return to_float(x); });
  }
}

void from_floats(DType dtype, const float* values, int64_t count, void* out) {
  if (dtype == DType::f32) {
    std::memcpy(out, values, static_cast<size_t>(4 * count));
  } else {
    std::transform(values, values + count, static_cast<bf16*>(out), [](float x) { return to_bf16(x); });
  }
}

}  // namespace

void LayerRecord::read_elements(const TensorSpec& tensor, int64_t begin, int64_t count, void* out) const {
  const int64_t element = dtype_bytes(dtype());
  if (!packed()) return read_stored((tensor.offset + begin) * element, count * element, out);
  if (tensor.packing == WeightPacking::none)
    return read_stored(tensor.packed_offset + begin * element, count * element, out);
  if (tensor.packing == WeightPacking::fp8) return read_fp8(tensor, begin, count, out);
  const int64_t first = begin / kMxfp4Block, blocks = ceil_div(begin + count, kMxfp4Block) - first;
  std::vector<std::byte> codes(static_cast<size_t>(blocks * kMxfp4BlockBytes)), scales(static_cast<size_t>(blocks));
  read_stored(tensor.packed_offset + first * kMxfp4BlockBytes, std::ssize(codes), codes.data());
  read_stored(tensor.scales_offset() + first, blocks, scales.data());
  std::vector<float> values(static_cast<size_t>(count));
  decode_mxfp4(codes.data(), scales.data(), begin - first * kMxfp4Block, count, values.data());
  from_floats(dtype(), values.data(), count, out);
}

void LayerRecord::write_elements(const TensorSpec& tensor, int64_t begin, int64_t count, const void* elements) {
  const int64_t element = dtype_bytes(dtype());
  if (!packed()) return write_stored((tensor.offset + begin) * element, count * element, elements);
  if (tensor.packing == WeightPacking::none)
    return write_stored(tensor.packed_offset + begin * element, count * element, elements);
  std::vector<float> values(static_cast<size_t>(count));
  to_floats(dtype(), elements, count, values.data());
  constexpr const char* kUnheld = "a packed tensor gets values that it can hold";
  if (tensor.packing == WeightPacking::fp8) {
    std::vector<std::byte> codes(static_cast<size_t>(count));
    const std::vector<float> scales = fp8_scales_of(tensor);
    ensure(encode_fp8(dtype(), values.data(), scales.data(), tensor.cols, begin, count, codes.data()), kUnheld);
    return write_packed(Packed::codes, tensor, begin, count, codes.data());
  }
  ensure(begin % kMxfp4Block == 0 && count % kMxfp4Block == 0, "a packed tensor is written in whole blocks");
  const int64_t first = begin / kMxfp4Block, blocks = count / kMxfp4Block;
  std::vector<std::byte> codes(static_cast<size_t>(blocks * kMxfp4BlockBytes)), scales(static_cast<size_t>(blocks));
  ensure(encode_mxfp4(values.data(), count, codes.data(), scales.data()), kUnheld);
  write_packed(Packed::codes, tensor, first * kMxfp4BlockBytes, std::ssize(codes), codes.data());
  write_packed(Packed::scales, tensor, first, blocks, scales.data());
}

void LayerRecord::write_packed(Packed what, const TensorSpec& tensor, int64_t begin, int64_t bytes, const void* data) {
  ensure(packed() && tensor.packing != WeightPacking::none, "codes and scales are those of a packed tensor");
  write_stored((what == Packed::codes ? tensor.packed_offset : tensor.scales_offset()) + begin, bytes, data);
}

std::vector<float> LayerRecord::fp8_scales_of(const TensorSpec& tensor) const {
  std::vector<float> scales(static_cast<size_t>(fp8_scales(tensor.rows, tensor.cols)));
  read_stored(tensor.scales_offset(), packed_scale_bytes(tensor.packing, tensor.rows, tensor.cols), scales.data());
  return scales;
}

void LayerRecord::read_fp8(const TensorSpec& tensor, int64_t begin, int64_t count, void* out) const {
  std::vector<std::byte> codes(static_cast<size_t>(count));
  read_stored(tensor.packed_offset + begin, count, codes.data());
  std::vector<float> values(static_cast<size_t>(count));
  decode_fp8(codes.data(), fp8_scales_of(tensor).data(), tensor.cols, begin, count, values.data());
  from_floats(dtype(), values.data(), count, out);
}

bool LayerRecord::holds(const TensorSpec& tensor, int64_t begin, int64_t count, const float* values) const {
  if (tensor.exact && std::any_of(values, values + count, [](float x) { return master_low(x) != 0; })) return false;
  if (!packed() || tensor.packing == WeightPacking::none) return true;
  std::vector<std::byte> codes(static_cast<size_t>(count)), scales(static_cast<size_t>(count / kMxfp4Block));
  if (tensor.packing == WeightPacking::fp8)
    return encode_fp8(dtype(), values, fp8_scales_of(tensor).data(), tensor.cols, begin, count, codes.data());
  return encode_mxfp4(values, count, codes.data(), scales.data());
}

void LayerRecord::read_weights(int64_t begin, int64_t bytes, void* out) const {
  if (!packed()) return read_stored(begin, bytes, out);
  const int64_t element = dtype_bytes(dtype()), end = begin + bytes;
  std::memset(out, 0, static_cast<size_t>(bytes));  // zero the gaps
  for (const TensorSpec& tensor : layout_.tensors) {
    const int64_t at = tensor.offset * element;
    const int64_t from = std::max(begin, at), to = std::min(end, at + tensor.elements() * element);
    if (from >= to) continue;
    read_elements(tensor, (from - at) / element, (to - from) / element, static_cast<std::byte*>(out) + (from - begin));
  }
}

void LayerRecord::read_stored(int64_t begin, int64_t bytes, void* out) const {
  if (!weights_in_files()) return read_plane(weights_, disk_.weights, begin, bytes, out);
  disk_.source->read(disk_.source_record, begin, bytes, static_cast<std::byte*>(out));
}

void LayerRecord::write_stored(int64_t begin, int64_t bytes, const void* data) {
  ensure(!weights_in_files(), "weights that stay in the model's files are not written");
  write_plane(weights_, disk_.weights, begin, bytes, data);
}

void LayerRecord::read_plane(const Buffer& plane, int64_t disk, int64_t begin, int64_t bytes, void* out) const {
  if (disk >= 0) return disk_.file->read_at(disk + begin, out, bytes);
  copy(out, plane.data() + begin, static_cast<size_t>(bytes));
}

void LayerRecord::write_plane(const Buffer& plane, int64_t disk, int64_t begin, int64_t bytes, const void* data) {
  if (disk >= 0) return disk_.file->write_at(disk + begin, data, bytes);
  copy(plane.data() + begin, data, static_cast<size_t>(bytes));
}

void LayerRecord::read_moment(Moment moment, const TensorSpec& tensor, int64_t begin, int64_t count, float* out) const {
  const int64_t element = moment_element_bytes(layout_.moments), at = (tensor.state_offset + begin) * element;
  if (layout_.moments == MomentFormat::fp32) return read_plane(moment, at, count * element, out);
  if (layout_.moments == MomentFormat::bf16) {
    std::vector<bf16> values(static_cast<size_t>(count));
    read_plane(moment, at, count * element, values.data());
    std::transform(values.begin(), values.end(), out, [](bf16 x) { return to_float(x); });
    return;
  }
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  read_codes(moment, tensor, begin, count, codes.data());
  const int64_t block = tensor.block_of(begin), blocks = tensor.block_of(begin + count - 1) + 1 - block;
  std::vector<float> scales(static_cast<size_t>(blocks));
  read_scales(moment, tensor, block, blocks, scales.data());
  decode_moments(moment == Moment::first, tensor.block_row(), begin, codes, scales, out);
}

void LayerRecord::write_moment(Moment moment, const TensorSpec& tensor, int64_t begin, int64_t count,
                               const float* values) {
  const int64_t element = moment_element_bytes(layout_.moments), at = (tensor.state_offset + begin) * element;
  if (layout_.moments == MomentFormat::fp32) return write_plane(moment, at, count * element, values);
  ensure(layout_.moments == MomentFormat::bf16, "int8 moments are written as codes and scales");
  std::vector<bf16> narrow(static_cast<size_t>(count));
  std::transform(values, values + count, narrow.begin(), [](float x) { return to_bf16(x); });
  write_plane(moment, at, count * element, narrow.data());
}

void LayerRecord::read_codes(Moment moment, const TensorSpec& tensor, int64_t begin, int64_t count,
                             uint8_t* out) const {
  read_plane(moment, tensor.state_offset + begin, count, out);
}

void LayerRecord::write_codes(Moment moment, const TensorSpec& tensor, int64_t begin, int64_t count,
                              const uint8_t* codes) {
  write_plane(moment, tensor.state_offset + begin, count, codes);
}

void LayerRecord::read_scales(Moment moment, const TensorSpec& tensor, int64_t block, int64_t count, float* out) const {
  read_plane(moment, scale_at(tensor, block), 4 * count, out);
}

void LayerRecord::write_scales(Moment moment, const TensorSpec& tensor, int64_t block, int64_t count,
                               const float* scales) {
  write_plane(moment, scale_at(tensor, block), 4 * count, scales);
}

std::vector<LayerRecord> make_records(Device& device, const std::vector<LayerLayout>& layouts,
                                      const std::vector<Tier>& tiers, const std::vector<DiskPlanes>& disk,
                                      const std::vector<int64_t>& homes) {
  const auto home = [&](size_t i) { return homes.empty() ? i : static_cast<size_t>(homes[i]); };
  const auto disk_of = [&](size_t i) { return disk.empty() ? DiskPlanes{} : disk[i]; };
  std::map<Tier, std::array<SharedPlanes, 4>> shared;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const auto needs = plane_needs(layouts[i], disk_of(i));
    for (size_t plane = 0; plane < needs.size(); ++plane) {
      if (home(i) == i && needs[plane].bytes < kSharedPlaneBytes) shared[tiers[i]][plane].count(needs[plane].bytes);
    }
  }
  std::vector<LayerRecord> records;
  records.reserve(layouts.size());
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (home(i) < i) {
      records.emplace_back(records[home(i)], layouts[i]);
      continue;
    }
    PlaneBuffers planes;
    const auto needs = plane_needs(layouts[i], disk_of(i));
    for (size_t plane = 0; plane < needs.size(); ++plane) {
      const PlaneNeed& need = needs[plane];
      if (need.bytes == 0) continue;
      planes.*need.buffer = need.bytes < kSharedPlaneBytes
                                ? shared[tiers[i]][plane].take(device, tiers[i], need.bytes, need.tag)
                                : zeroed(device, tiers[i], need.bytes, need.tag);
    }
    records.emplace_back(device, layouts[i], tiers[i], disk_of(i), std::move(planes));
  }
  return records;
}

}  // namespace megatrain
