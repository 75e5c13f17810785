// How optimizer state is stored. A format changes bits, so it is part of the run's identity; the plan decides where the
// bytes are.
//
//   moments   fp32   4 bytes each, exact
//             bf16   2 bytes each, rounded stochastically (base/stochastic.h). Rounded to nearest, a second moment
//             would
//                    never shrink, because it shrinks by only a thousandth per step
//             int8   1 byte each and an fp32 scale for every kStateBlock of them (tensor/moment_codes.h)
//   master    fp32        the bf16 weight and the 16 bits below it: exact
//             stochastic  the bf16 weight alone, rounded stochastically
//
// 12, 8 or 6 bytes per parameter with an fp32 master; 10, 6 or 4 with a stochastic one.
#pragma once

#include <cstdint>

namespace megatrain {

enum class MomentFormat : uint8_t { fp32, bf16, int8 };
enum class MasterFormat : uint8_t { fp32, stochastic };

struct StateFormat {
  MomentFormat moments = MomentFormat::fp32;
  MasterFormat master = MasterFormat::fp32;
  bool operator==(const StateFormat&) const = default;
};

constexpr int64_t moment_element_bytes(MomentFormat moments) {
  return moments == MomentFormat::fp32 ? 4 : moments == MomentFormat::bf16 ? 2 : 1;
}
constexpr const char* moments_name(MomentFormat moments) {
  return moments == MomentFormat::fp32 ? "fp32" : moments == MomentFormat::bf16 ? "bf16" : "int8";
}
constexpr const char* master_name(MasterFormat master) { return master == MasterFormat::fp32 ? "fp32" : "stochastic"; }

// Elements that share a scale. Blocks count from each tensor's first element, in an embedding from each row's. The last
// block of a tensor or row may be short. So padding, fusing or freezing in a layout never changes a bit.
inline constexpr int64_t kStateBlock = 256;

// For elements whose blocks restart after every `row` of them.
constexpr int64_t row_state_blocks(int64_t row) { return (row + kStateBlock - 1) / kStateBlock; }
constexpr int64_t state_block_of(int64_t element, int64_t row) {
  return element / row * row_state_blocks(row) + element % row / kStateBlock;
}

// What an update of a run of elements needs to know about its state, besides addresses, if the state is not exact.
struct CodedState {
  MomentFormat moments = MomentFormat::fp32;
  float* m_scales = nullptr;  // int8: one per block, starting with the run's first
  float* v_scales = nullptr;
  int64_t row = 0;         // blocks restart after this many elements, and the run starts with a block; 0: never
  uint64_t name_hash = 0;  // of the tensor
  int64_t first = 0;       // index of the run's first element in the tensor
};

}  // namespace megatrain
