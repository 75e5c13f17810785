// The arithmetic of AdamW, written once over a vector type. Every instruction set's file includes it and instantiates
// adamw_pass<Vec> with its own Vec:
//
//   kLanes, F (floats), U (32-bit integers)
//   F  set(float)  load(const float*)  mul  sub  fma(a, b, c) = a * b + c in one rounding  div  sqrt
//      flush_below(x, limit) = |x| < limit ? +0 : x      as_float(U)
//   U  zero()  half() = 0x8000  widen(const uint16_t*)  widen_signed(const uint16_t*)  add  shift_up16  shift_down16
//      largest_magnitude(U worst, F x) = max(worst, bits of |x|)      as_bits(F)
//   store(float*, F)   narrow(uint16_t*, U): the low 16 bits of each lane   uint32_t largest(U)
//
// The namespace is unnamed because the files are compiled for different instruction sets: a shared inline function
// could be linked in from a file that this CPU cannot run. For the same reason nothing here calls inline library code.
#pragma once

#include <cstdint>

#include "megatrain/base/finite.h"
#include "megatrain/ops/adamw.h"

namespace megatrain {
namespace {

constexpr float kFlushBelow = 0x1.0p-100f;

// Which form of gradient and of master a loop reads.
enum class Grad { none, bf16, f32 };
enum class Master { split, plain };

template <class Vec>
struct Constants {
  typename Vec::F clip, beta2, one_minus_beta1, one_minus_beta2, inv_sqrt_bias2, eps, minus_step_size, decay, flush;

  explicit Constants(const AdamWScalars& s)
      : clip(Vec::set(s.clip)),
        beta2(Vec::set(s.beta2)),
        one_minus_beta1(Vec::set(s.one_minus_beta1)),
        one_minus_beta2(Vec::set(s.one_minus_beta2)),
        inv_sqrt_bias2(Vec::set(s.inv_sqrt_bias2)),
        eps(Vec::set(s.eps)),
        minus_step_size(Vec::set(-s.step_size)),
        decay(Vec::set(s.decay)),
        flush(Vec::set(kFlushBelow)) {}
};

// The largest magnitudes seen so far, as bits.
template <class Vec>
struct Worst {
  typename Vec::U master = Vec::zero(), moment = Vec::zero();

  bool finite() const { return Vec::largest(master) < kMasterFiniteBelow && Vec::largest(moment) < kFiniteBelow; }
};

// Elements [i, i + kLanes).
template <class Vec, Grad kGrad, Master kMaster>
inline void update_lanes(const AdamW& args, const Constants<Vec>& c, int64_t i, Worst<Vec>& worst) {
  using F = typename Vec::F;
  F g = Vec::as_float(Vec::zero());
  if constexpr (kGrad == Grad::bf16) {
    g = Vec::as_float(Vec::shift_up16(Vec::widen(reinterpret_cast<const uint16_t*>(args.grad_bf16) + i)));
  } else if constexpr (kGrad == Grad::f32) {
    g = Vec::load(args.grad_f32 + i);
  }
  float* const at_m = static_cast<float*>(args.m) + i;
  float* const at_v = static_cast<float*>(args.v) + i;
  const F m0 = Vec::load(at_m);
  const F v0 = Vec::load(at_v);
  F w0;
  if constexpr (kMaster == Master::split) {
    const auto high = Vec::widen(reinterpret_cast<const uint16_t*>(args.weight) + i);
    w0 = Vec::as_float(Vec::add(Vec::shift_up16(high), Vec::widen_signed(args.low + i)));
  } else {
    w0 = Vec::load(args.master + i);
  }

  const F scaled = Vec::mul(g, c.clip);
  const F m = Vec::fma(Vec::sub(scaled, m0), c.one_minus_beta1, m0);
  const F v = Vec::fma(Vec::mul(scaled, scaled), c.one_minus_beta2, Vec::mul(v0, c.beta2));
  const F d = Vec::fma(Vec::sqrt(v), c.inv_sqrt_bias2, c.eps);
  const F w = Vec::fma(c.minus_step_size, Vec::div(m, d), Vec::mul(w0, c.decay));

  Vec::store(at_m, Vec::flush_below(m, c.flush));
  Vec::store(at_v, Vec::flush_below(v, c.flush));
  if constexpr (kMaster == Master::split) {
    const auto bits = Vec::as_bits(w);
    Vec::narrow(reinterpret_cast<uint16_t*>(args.weight) + i, Vec::shift_down16(Vec::add(bits, Vec::half())));
    Vec::narrow(args.low + i, bits);
  } else {
    Vec::store(args.master + i, w);
  }
  worst.master = Vec::largest_magnitude(worst.master, w);
  worst.moment = Vec::largest_magnitude(Vec::largest_magnitude(worst.moment, m), v);
}

// The last count % kLanes elements, through a full vector outside the tensor. Unused lanes repeat the last element, so
// they do not affect the finite flag.
template <class Vec, Grad kGrad, Master kMaster>
inline void update_tail(const AdamW& args, const Constants<Vec>& c, int64_t begin, Worst<Vec>& worst) {
  constexpr int kLanes = Vec::kLanes;
  bf16 grad_bf16[kLanes], weight[kLanes];
  float grad_f32[kLanes], m[kLanes], v[kLanes], master[kLanes];
  uint16_t low[kLanes];
  float* const all_m = static_cast<float*>(args.m);
  float* const all_v = static_cast<float*>(args.v);
  for (int lane = 0; lane < kLanes; ++lane) {
    const int64_t i = begin + lane < args.count ? begin + lane : args.count - 1;
    if constexpr (kGrad == Grad::bf16) grad_bf16[lane] = args.grad_bf16[i];
    if constexpr (kGrad == Grad::f32) grad_f32[lane] = args.grad_f32[i];
    m[lane] = all_m[i];
    v[lane] = all_v[i];
    if constexpr (kMaster == Master::split) {
      weight[lane] = args.weight[i];
      low[lane] = args.low[i];
    } else {
      master[lane] = args.master[i];
    }
  }
  const AdamW lanes{.scalars = args.scalars,
                    .count = kLanes,
                    .grad_bf16 = grad_bf16,
                    .grad_f32 = grad_f32,
                    .m = m,
                    .v = v,
                    .weight = weight,
                    .low = low,
                    .master = master};
  update_lanes<Vec, kGrad, kMaster>(lanes, c, 0, worst);
  for (int64_t i = begin; i < args.count; ++i) {
    all_m[i] = m[i - begin];
    all_v[i] = v[i - begin];
    if constexpr (kMaster == Master::split) {
      args.weight[i] = weight[i - begin];
      args.low[i] = low[i - begin];
    } else {
      args.master[i] = master[i - begin];
    }
  }
}

template <class Vec, Grad kGrad, Master kMaster>
bool update(const AdamW& args) {
  const Constants<Vec> c(args.scalars);
  Worst<Vec> worst;
  const int64_t whole = args.count - args.count % Vec::kLanes;
  for (int64_t i = 0; i < whole; i += Vec::kLanes) update_lanes<Vec, kGrad, kMaster>(args, c, i, worst);
  if (whole < args.count) update_tail<Vec, kGrad, kMaster>(args, c, whole, worst);
  return worst.finite();
}

template <class Vec, Master kMaster>
bool update_master(const AdamW& args) {
  if (args.grad_bf16 != nullptr) return update<Vec, Grad::bf16, kMaster>(args);
  if (args.grad_f32 != nullptr) return update<Vec, Grad::f32, kMaster>(args);
  return update<Vec, Grad::none, kMaster>(args);
}

// For exact state.
template <class Vec>
bool update_exact(const AdamW& args) {
  return args.master != nullptr ? update_master<Vec, Master::plain>(args) : update_master<Vec, Master::split>(args);
}

}  // namespace
}  // namespace megatrain
