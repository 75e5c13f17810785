// Packed weights compared with the decoder, on any device: every byte under every scale, matrices in fp8 with partial
// blocks, and copies of any length.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "megatrain/base/bf16.h"
#include "megatrain/base/math.h"
#include "megatrain/base/rng.h"
#include "megatrain/ops/ops.h"

namespace megatrain::testing {

struct UnpackCase {
  WeightPacking packing;
  DType dtype;
  int64_t elements, parts;
  int64_t out_gap = 0;  // bytes between parts
  int64_t cols = 0;     // of fp8
};

inline std::vector<UnpackCase> unpack_cases() {
  std::vector<UnpackCase> cases;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    cases.insert(cases.end(), {{WeightPacking::mxfp4, dtype, 131072, 1},
                               {WeightPacking::mxfp4, dtype, 32, 1},
                               {WeightPacking::mxfp4, dtype, 17 * 32, 5, 256},
                               {WeightPacking::mxfp4, dtype, 8192 + 32, 3, 64},
                               {WeightPacking::fp8, dtype, 256 * 384, 1, 0, 384},
                               {WeightPacking::fp8, dtype, 200 * 144, 3, 64, 144},  // whole runs, partial blocks
                               {WeightPacking::fp8, dtype, 192 * 128, 2, 2 * dtype_bytes(dtype), 128},  // not aligned
                               {WeightPacking::fp8, dtype, 131 * 137, 5, 4, 137},
                               {WeightPacking::fp8, dtype, 3 * 5, 4, 128, 5},
                               {WeightPacking::fp8, dtype, 300, 1, 0, 1},
                               {WeightPacking::none, dtype, 5, 7, 4},
                               {WeightPacking::none, dtype, 4096, 3, 64},
                               {WeightPacking::none, dtype, 4099, 2, 16}});
  }
  return cases;
}

inline int64_t stored_bytes(const UnpackCase& c) {
  if (c.packing == WeightPacking::none) return c.elements * dtype_bytes(c.dtype);
  const int64_t cols = c.cols > 0 ? c.cols : c.elements;
  return packed_bytes(c.packing, c.elements / cols, cols);
}

// Random bytes, of fp8 without NaN and with scales of any size that bf16 holds, also subnormal ones.
inline std::vector<std::byte> random_packed(const UnpackCase& c, int64_t stride) {
  std::vector<std::byte> packed(static_cast<size_t>(c.parts * stride));
  for (size_t i = 0; i < packed.size(); ++i) packed[i] = static_cast<std::byte>(random_below(3, 1, i, 256));
  if (c.packing != WeightPacking::fp8) return packed;
  for (int64_t part = 0; part < c.parts; ++part) {
    std::byte* codes = packed.data() + part * stride;
    for (int64_t i = 0; i < c.elements; ++i) {
      if ((codes[i] & std::byte{0x7F}) == std::byte{0x7F}) codes[i] ^= std::byte{1};
    }
    auto* scales = reinterpret_cast<float*>(codes + packed_scales_at(c.packing, 1, c.elements));
    for (int64_t i = 0; i < fp8_scales(c.elements / c.cols, c.cols); ++i) {
      const auto bits = static_cast<uint32_t>(random_below(3, 2, static_cast<uint64_t>(part * 64 + i), 0x7A000000u));
      scales[i] = std::bit_cast<float>(i % 3 == 1 ? bits | 0x80000000u : bits);
    }
  }
  return packed;
}

// The bits of the values, part after part.
inline std::vector<std::byte> unpacked(const UnpackCase& c, const std::vector<std::byte>& packed, int64_t stride) {
  const int64_t width = dtype_bytes(c.dtype), bytes = c.elements * width;
  std::vector<std::byte> out(static_cast<size_t>(c.parts * bytes));
  for (int64_t part = 0; part < c.parts; ++part) {
    const std::byte* from = packed.data() + part * stride;
    std::byte* to = out.data() + part * bytes;
    if (c.packing == WeightPacking::none) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
      continue;
    }
    std::vector<float> values(static_cast<size_t>(c.elements));
    const std::byte* scales = from + packed_scales_at(c.packing, 1, c.elements);
    if (c.packing == WeightPacking::fp8) {
      decode_fp8(from, reinterpret_cast<const float*>(scales), c.cols, 0, c.elements, values.data());
    } else {
      decode_mxfp4(from, scales, 0, c.elements, values.data());
    }
    for (int64_t i = 0; i < c.elements; ++i) {
      const bf16 narrow = to_bf16(values[static_cast<size_t>(i)]);
      std::memcpy(to + i * width, width == 2 ? static_cast<const void*>(&narrow) : &values[static_cast<size_t>(i)],
                  static_cast<size_t>(width));
    }
  }
  return out;
}

inline void expect_unpacked(Device& device, Ops& ops, Stream& stream, const UnpackCase& c) {
  const int64_t bytes = c.elements * dtype_bytes(c.dtype);
  const int64_t stride = round_up(stored_bytes(c), kPackedAlignment);
  const std::vector<std::byte> packed = random_packed(c, stride);
  const int64_t out_stride = bytes + c.out_gap;
  const Buffer from = device.allocate(packed.size(), "test");
  const Buffer to = device.allocate(static_cast<size_t>(c.parts * out_stride), "test");
  stream.copy(from.data(), packed.data(), packed.size());
  ops.unpack_weights(stream, {.packing = c.packing,
                              .dtype = c.dtype,
                              .packed = from.data(),
                              .out = to.data(),
                              .elements = c.elements,
                              .cols = c.cols,
                              .parts = c.parts,
                              .packed_stride = stride,
                              .out_stride = out_stride});
  std::vector<std::byte> all(to.bytes());
  stream.copy(all.data(), to.data(), all.size());
  stream.synchronize();
  const std::vector<std::byte> expected = unpacked(c, packed, stride);
  for (int64_t part = 0; part < c.parts; ++part) {
    EXPECT_EQ(std::memcmp(all.data() + part * out_stride, expected.data() + part * bytes, static_cast<size_t>(bytes)),
              0)
        << "part " << part << " of " << c.parts << " with " << c.elements << " of " << dtype_name(c.dtype);
  }
}

}  // namespace megatrain::testing
