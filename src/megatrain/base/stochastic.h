// Stochastic rounding of fp32 to bf16: up with a probability equal to the fraction cut off, so that the mean over many
// steps is the value itself. Random numbers are a function of a key and an element's index, never of order or thread.
#pragma once

#include <cstdint>

#include "megatrain/base/host_device.h"

namespace megatrain {

// The key is made from (seed, step, tensor); `salt` separates several uses of one element.
MEGATRAIN_HOST_DEVICE uint64_t mix_key(uint64_t key, uint64_t salt) {
  key += salt * 0x9E3779B97F4A7C15ull;
  key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9ull;
  key = (key ^ (key >> 27)) * 0x94D049BB133111EBull;
  return key ^ (key >> 31);
}

// 32 random bits for an element.
MEGATRAIN_HOST_DEVICE uint32_t element_bits(uint64_t key, uint32_t element) {
  uint32_t x = (element ^ static_cast<uint32_t>(key)) * 0x9E3779B1u;
  x = (x ^ (x >> 15)) * 0x85EBCA77u + static_cast<uint32_t>(key >> 32);
  x = (x ^ (x >> 13)) * 0xC2B2AE3Du;
  return x ^ (x >> 16);
}

// The bits of a bf16 from those of an fp32 and 16 random bits. Values from kStochasticFiniteBelow (base/finite.h) up
// may become infinite.
MEGATRAIN_HOST_DEVICE uint32_t round_by_chance(uint32_t bits, uint32_t random16) { return (bits + random16) >> 16; }

}  // namespace megatrain
