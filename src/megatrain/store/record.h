// A layer's authoritative state in host memory, in planes that share one layout.
//
//   bf16 weights: weights (2 bytes, what streams) + low (2) + m (4) + v (4)   true fp32 master in 12 bytes a parameter
//   fp32 weights: weights (4, the master itself)  + m (4) + v (4)
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/base/bf16.h"
#include "megatrain/device/device.h"
#include "megatrain/tensor/dtype.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

class LayerRecord {
 public:
  // Planes are zero: gaps between tensors stay so for ever.
  LayerRecord(Device& device, LayerLayout layout, DType weights);

  const LayerLayout& layout() const { return layout_; }
  DType dtype() const { return dtype_; }
  int64_t weight_bytes() const { return layout_.elements * dtype_bytes(dtype_); }

  std::byte* weights() const { return weights_.data(); }
  bf16* weights_bf16() const { return reinterpret_cast<bf16*>(weights_.data()); }
  float* master() const { return reinterpret_cast<float*>(weights_.data()); }  // fp32 weights only
  uint16_t* low() const { return reinterpret_cast<uint16_t*>(low_.data()); }   // bf16 weights only
  float* m() const { return reinterpret_cast<float*>(m_.data()); }
  float* v() const { return reinterpret_cast<float*>(v_.data()); }

  // The logical fp32 master of elements [begin, begin + count), whichever form it is stored in.
  void read_master(int64_t begin, int64_t count, float* out) const;
  void write_master(int64_t begin, int64_t count, const float* values);

 private:
  LayerLayout layout_;
  DType dtype_;
  Buffer weights_, low_, m_, v_;
};

std::vector<LayerRecord> make_records(Device& device, const std::vector<LayerLayout>& layouts, DType weights);

}  // namespace megatrain
