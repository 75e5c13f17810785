// A layer's authoritative state, in planes that share one layout and live on one tier.
//
//   bf16 weights: weights (2 bytes, what streams) + low (2) + m (4) + v (4)   true fp32 master in 12 bytes a parameter
//   fp32 weights: weights (4, the master itself)  + m (4) + v (4)
//
// Weights and low bits hold every tensor, by its offset; m and v the trained ones, by their state_offset.
// Addresses are the tier's: on Tier::hbm they are the device's, and only read_ and write_ reach the values from here.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/base/bf16.h"
#include "megatrain/device/device.h"
#include "megatrain/tensor/dtype.h"
#include "megatrain/tensor/layout.h"
#include "megatrain/tensor/tier.h"

namespace megatrain {

// The addresses of the planes, wherever they lie; one form of master is there.
struct StatePlanes {
  bf16* weight = nullptr;
  uint16_t* low = nullptr;
  float* master = nullptr;
  float* m = nullptr;
  float* v = nullptr;

  // Planes of `elements` one after the other in 12 bytes an element.
  static StatePlanes within(std::byte* base, int64_t elements, DType weights);
};

class LayerRecord {
 public:
  // Planes are zero: gaps between tensors stay so for ever. Where the master is what streams, values written are
  // rounded to it, as the high half of a split master is, and read back so.
  LayerRecord(Device& device, LayerLayout layout, Tier tier);

  const LayerLayout& layout() const { return layout_; }
  DType dtype() const { return layout_.dtype(); }
  Tier tier() const { return tier_; }
  int64_t weight_bytes() const { return layout_.elements * dtype_bytes(dtype()); }

  std::byte* weights() const { return weights_.data(); }
  StatePlanes planes() const;

  // Elements [begin, begin + count) of the logical fp32 master, whichever form it is stored in, and of the moments,
  // where `begin` counts as state_offset does. The lanes must be idle. Any thread.
  void read_master(int64_t begin, int64_t count, float* out) const;
  void write_master(int64_t begin, int64_t count, const float* values);
  enum class Moment : uint8_t { first, second };
  void read_moment(Moment moment, int64_t begin, int64_t count, float* out) const;
  void write_moment(Moment moment, int64_t begin, int64_t count, const float* values);

 private:
  void copy(void* to, const void* from, size_t bytes) const;
  const Buffer& moment_plane(Moment moment) const { return moment == Moment::first ? m_ : v_; }

  Device* device_;
  LayerLayout layout_;
  Tier tier_;
  Buffer weights_, low_, m_, v_;
};

// `tiers` has one for each layout.
std::vector<LayerRecord> make_records(Device& device, const std::vector<LayerLayout>& layouts,
                                      const std::vector<Tier>& tiers);

}  // namespace megatrain
