// A layer's authoritative state, in planes that share one layout and live on one tier.
//
//   bf16 weights: weights (2 bytes, what streams) + low (2) + m (4) + v (4)   true fp32 master in 12 bytes a parameter
//   fp32 weights: weights (4, the master itself)  + m (4) + v (4)
//
// In other formats (tensor/state_format.h) there are no low bits, and m and v are smaller. Weights are in their stored
// form (tensor/layout.h): in a packed record they are not a plane of elements.
//
//   weights    every tensor, at its offset
//   m and v    trained tensors, at their state_offset
//   low bits   tensors whose master is wider than bf16, at their low_offset
//
// A frozen tensor from a bf16 source has only weights. Addresses belong to the tier: on Tier::hbm they are device
// addresses, and the host can access the values only through the read_ and write_ functions.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/base/bf16.h"
#include "megatrain/device/device.h"
#include "megatrain/tensor/dtype.h"
#include "megatrain/tensor/layout.h"
#include "megatrain/tensor/tier.h"

namespace megatrain {

// The addresses of the planes, on any tier. Only one form of the master exists: low bits or `master`.
struct StatePlanes {
  bf16* weight = nullptr;
  uint16_t* low = nullptr;  // null: the bf16 weight is the master
  float* master = nullptr;
  std::byte* m = nullptr;
  std::byte* v = nullptr;
  MomentFormat moments = MomentFormat::fp32;
  int64_t scales_offset = 0;  // bytes into m and v

  // The planes of the trained tensors, one after the other from `base`.
  static StatePlanes within(std::byte* base, const LayerLayout& layout);

  // The moments of a tensor's elements from `begin` on.
  std::byte* first_moments(const TensorSpec& tensor, int64_t begin) const { return m + at(tensor, begin); }
  std::byte* second_moments(const TensorSpec& tensor, int64_t begin) const { return v + at(tensor, begin); }
  CodedState coded(const TensorSpec& tensor, int64_t begin) const;

 private:
  int64_t at(const TensorSpec& tensor, int64_t begin) const {
    return (tensor.state_offset + begin) * moment_element_bytes(moments);
  }
};

class ScratchFile;
class WeightSource;

// Where planes of a record are on disk: byte offsets into the file, or -1 for planes on the record's tier.
struct DiskPlanes {
  ScratchFile* file = nullptr;
  // The weights stay in the model's files, where they are those of record `source_record`.
  WeightSource* source = nullptr;
  int64_t source_record = -1;
  int64_t weights = -1;
  int64_t low = -1;
  int64_t m = -1;
  int64_t v = -1;
};

// Planes start at multiples of this, and their sizes are multiples too: kernels may be chosen by alignment.
inline constexpr int64_t kPlaneAlignment = 256;

// Planes smaller than a huge page share memory with those of other records.
inline constexpr int64_t kSharedPlaneBytes = int64_t{2} << 20;

// The memory of a record's planes; buffers of planes that it does not have are empty.
struct PlaneBuffers {
  Buffer weights, low, m, v;
};

class LayerRecord {
 public:
  // Planes start zeroed, and gaps between tensors stay zero forever. If the streamed weight is itself the master,
  // written values are rounded to it, as the high half of a split master is, and read back rounded. Planes on disk take
  // no memory here, and planes() does not have them.
  LayerRecord(Device& device, LayerLayout layout, Tier tier, const DiskPlanes& disk = {});

  // Uses zeroed memory of the planes' sizes, which make_records() hands out.
  LayerRecord(Device& device, LayerLayout layout, Tier tier, const DiskPlanes& disk, PlaneBuffers planes);

  // An alias: lives in the memory of `home`, which must outlive it and have the same sizes. What is written to one is
  // read from the other.
  LayerRecord(const LayerRecord& home, LayerLayout layout);

  const LayerLayout& layout() const { return layout_; }
  DType dtype() const { return layout_.dtype(); }
  Tier tier() const { return tier_; }
  bool packed() const { return layout_.packed(); }
  int64_t weight_bytes() const { return layout_.weight_bytes(); }

  std::byte* weights() const { return weights_.data(); }             // in their stored form; not for weights on disk
  bool weights_in_files() const { return disk_.source != nullptr; }  // which are only read
  bool weights_on_disk() const { return disk_.weights >= 0 || weights_in_files(); }
  StatePlanes planes() const;

  // Reads bytes [begin, begin + bytes) of the weights, in the dtype that computes, to host memory. The lanes must be
  // idle. Any thread.
  void read_weights(int64_t begin, int64_t bytes, void* out) const;

  // Elements [begin, begin + count) of a tensor's logical fp32 master, in whichever form it is stored. The lanes must
  // be idle. Any thread. Values written to an exact tensor must be representable in its weights. Values written to a
  // packed tensor must be representable in its packing: in MXFP4 they must be whole blocks, in fp8 those of codes under
  // the scales that write_packed() has put there.
  void read_master(const TensorSpec& tensor, int64_t begin, int64_t count, float* out) const;
  void write_master(const TensorSpec& tensor, int64_t begin, int64_t count, const float* values);

  // Whether write_master() accepts these values: a frozen tensor can hold only what its source could.
  bool holds(const TensorSpec& tensor, int64_t begin, int64_t count, const float* values) const;

  // Writes bytes of a packed tensor's codes or scales as they are stored, from `begin` on.
  enum class Packed : uint8_t { codes, scales };
  void write_packed(Packed what, const TensorSpec& tensor, int64_t begin, int64_t bytes, const void* data);

  // The same for a trained tensor's moments. Written values must be representable in the format (fp32: anything); int8
  // codes are written by write_codes().
  enum class Moment : uint8_t { first, second };
  void read_moment(Moment moment, const TensorSpec& tensor, int64_t begin, int64_t count, float* out) const;
  void write_moment(Moment moment, const TensorSpec& tensor, int64_t begin, int64_t count, const float* values);

  // int8 moments as stored: codes of elements, and scales of the tensor's blocks.
  void read_codes(Moment moment, const TensorSpec& tensor, int64_t begin, int64_t count, uint8_t* out) const;
  void write_codes(Moment moment, const TensorSpec& tensor, int64_t begin, int64_t count, const uint8_t* codes);
  void read_scales(Moment moment, const TensorSpec& tensor, int64_t block, int64_t count, float* out) const;
  void write_scales(Moment moment, const TensorSpec& tensor, int64_t block, int64_t count, const float* scales);

 private:
  void copy(void* to, const void* from, size_t bytes) const;
  // Elements [begin, begin + count) of a tensor in the dtype that computes, converted from and to their stored form.
  void read_elements(const TensorSpec& tensor, int64_t begin, int64_t count, void* out) const;
  void write_elements(const TensorSpec& tensor, int64_t begin, int64_t count, const void* elements);
  void read_fp8(const TensorSpec& tensor, int64_t begin, int64_t count, void* out) const;
  std::vector<float> fp8_scales_of(const TensorSpec& tensor) const;
  // Bytes [begin, begin + bytes) of a plane, in memory or at offset `disk` of the file.
  void read_stored(int64_t begin, int64_t bytes, void* out) const;  // of the weights, in their stored form
  void write_stored(int64_t begin, int64_t bytes, const void* data);
  void read_plane(const Buffer& plane, int64_t disk, int64_t begin, int64_t bytes, void* out) const;
  void write_plane(const Buffer& plane, int64_t disk, int64_t begin, int64_t bytes, const void* data);
  void read_plane(Moment moment, int64_t begin, int64_t bytes, void* out) const {
    const bool first = moment == Moment::first;
    read_plane(first ? m_ : v_, first ? disk_.m : disk_.v, begin, bytes, out);
  }
  void write_plane(Moment moment, int64_t begin, int64_t bytes, const void* data) {
    const bool first = moment == Moment::first;
    write_plane(first ? m_ : v_, first ? disk_.m : disk_.v, begin, bytes, data);
  }
  int64_t scale_at(const TensorSpec& tensor, int64_t block) const {  // in bytes
    return layout_.scales_offset() + 4 * (tensor.first_block + block);
  }

  Device* device_;
  LayerLayout layout_;
  Tier tier_;
  DiskPlanes disk_;
  Buffer weights_, low_, m_, v_;
};

// Small planes of a tier share one allocation, which is freed with the last of their records. `tiers` has one entry per
// layout. So has `disk`, unless it is empty. So has `homes`: the record in whose memory each record lives, itself or an
// earlier one; if empty, each lives in its own.
std::vector<LayerRecord> make_records(Device& device, const std::vector<LayerLayout>& layouts,
                                      const std::vector<Tier>& tiers, const std::vector<DiskPlanes>& disk = {},
                                      const std::vector<int64_t>& homes = {});

}  // namespace megatrain
