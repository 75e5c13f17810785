// The committed AdamW hash: fixed inputs, twenty steps, xxh3_128 over (master, m, v). Every instruction set and the GPU
// must produce it, with every form of gradient and master.
//
// Inputs use only integers and exact scalings, and scalars only IEEE operations, so they do not depend on the machine's
// maths library.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "megatrain/base/rng.h"
#include "megatrain/base/split_master.h"
#include "megatrain/ops/adamw.h"

namespace megatrain {

inline constexpr const char* kAdamWHash = "c7aa9f5425756e17bb57fdf91b448827";
inline constexpr int64_t kAdamWHashElements = 1'000'007;
inline constexpr int kAdamWHashSteps = 20;

// Calls visit(i, 32 random bits) for every element.
template <class Visit>
void for_each_random(uint64_t purpose, int64_t count, const Visit& visit) {
  constexpr uint64_t kSeed = 20'240'229;
  for (int64_t i = 0; i < count; i += 4) {
    const RandomBlock block = philox(kSeed, purpose, static_cast<uint64_t>(i));
    for (int64_t lane = 0; lane < 4 && i + lane < count; ++lane) visit(i + lane, block[static_cast<size_t>(lane)]);
  }
}

// A weight within +-2^-5; every thirteenth is a denormal.
inline float adamw_hash_weight(int64_t i, uint32_t r) {
  return static_cast<float>(static_cast<int32_t>(r) >> 8) * (i % 13 == 4 ? 0x1.0p-149f : 0x1.0p-28f);
}

// A gradient in bf16: 1/16 are zeros of either sign, 1/16 are the smallest bf16 values (denormals included), the rest
// lie between 2^-26 and 2^-10. Every eleventh element never gets a large one, so its m and v stay near the flush limit.
inline bf16 adamw_hash_gradient(int64_t i, uint32_t r) {
  const uint32_t sign = (r >> 7) & 1u, mantissa = r & 0x7Fu, kind = r >> 28;
  const bool tiny = kind == 1 || i % 11 == 3;
  const uint32_t exponent = tiny ? (r >> 8) & 63u : 127 - 26 + ((r >> 8) & 15u);
  return {static_cast<uint16_t>(kind == 0 ? sign << 15 : (sign << 15) | (exponent << 7) | mantissa)};
}

// (kAdamWHashSteps, kAdamWHashElements)
inline const std::vector<bf16>& adamw_hash_gradients() {
  static const std::vector<bf16> gradients = [] {
    std::vector<bf16> all(static_cast<size_t>(kAdamWHashSteps * kAdamWHashElements));
    for (int t = 1; t <= kAdamWHashSteps; ++t) {
      bf16* step = all.data() + (t - 1) * kAdamWHashElements;
      for_each_random(static_cast<uint64_t>(t), kAdamWHashElements,
                      [&](int64_t i, uint32_t r) { step[i] = adamw_hash_gradient(i, r); });
    }
    return all;
  }();
  return gradients;
}

// Step t = 1..20: learning rate, clip factor and decay all change.
inline AdamWScalars adamw_hash_scalars(int t) {
  constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;
  double power1 = 1, power2 = 1;
  for (int i = 0; i < t; ++i) {
    power1 *= kBeta1;
    power2 *= kBeta2;
  }
  const double lr = 1e-3 / t;
  return {.clip = t % 3 == 0 ? static_cast<float>(1.0 / t) : 1.0f,
          .beta2 = static_cast<float>(kBeta2),
          .one_minus_beta1 = static_cast<float>(1 - kBeta1),
          .one_minus_beta2 = static_cast<float>(1 - kBeta2),
          .inv_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - power2)),
          .eps = static_cast<float>(kEps),
          .step_size = static_cast<float>(lr / (1 - power1)),
          .decay = t % 2 == 0 ? static_cast<float>(1 - lr * 0.1) : 1.0f};
}

// Runs the twenty steps and returns the hash in hex. `update` gets host pointers and updates them in place.
inline std::string adamw_hash(bool bf16_gradient, bool split_master, const std::function<void(const AdamW&)>& update) {
  const size_t n = kAdamWHashElements;
  std::vector<float> master(n), m(n), v(n);
  std::vector<bf16> weight(split_master ? n : 0);
  std::vector<uint16_t> low(split_master ? n : 0);
  for_each_random(0, kAdamWHashElements, [&](int64_t i, uint32_t r) {
    const size_t at = static_cast<size_t>(i);
    master[at] = adamw_hash_weight(i, r);
    if (!split_master) return;
    weight[at] = master_high(master[at]);
    low[at] = master_low(master[at]);
  });

  std::vector<float> grad_f32(bf16_gradient ? 0 : n);
  for (int t = 1; t <= kAdamWHashSteps; ++t) {
    const bf16* grad_bf16 = adamw_hash_gradients().data() + (t - 1) * kAdamWHashElements;
    for (size_t i = 0; i < grad_f32.size(); ++i) grad_f32[i] = to_float(grad_bf16[i]);
    update({.scalars = adamw_hash_scalars(t),
            .count = kAdamWHashElements,
            .grad_bf16 = bf16_gradient ? grad_bf16 : nullptr,
            .grad_f32 = bf16_gradient ? nullptr : grad_f32.data(),
            .m = m.data(),
            .v = v.data(),
            .weight = split_master ? weight.data() : nullptr,
            .low = split_master ? low.data() : nullptr,
            .master = split_master ? nullptr : master.data()});
  }

  if (split_master) {
    for (size_t i = 0; i < n; ++i) master[i] = join_master(weight[i], low[i]);
  }
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  for (const float* plane : {master.data(), m.data(), v.data()}) XXH3_128bits_update(state, plane, n * sizeof(float));
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace megatrain
