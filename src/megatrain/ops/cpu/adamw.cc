// Chooses the AdamW pass at run time.
#include "megatrain/ops/adamw.h"

#include <string>

#include "megatrain/base/error.h"
#include "megatrain/ops/cpu/adamw_simd.h"

namespace megatrain {
namespace {

// Null if this CPU cannot run it.
AdamWPass find_pass(Simd simd) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
  const bool avx2 = false, avx512 = false;
#endif
  switch (simd) {
    case Simd::scalar: return adamw_scalar();
    case Simd::neon: return adamw_neon();
    case Simd::avx2: return avx2 ? adamw_avx2() : nullptr;
    case Simd::avx512: return avx512 ? adamw_avx512() : nullptr;
  }
  return nullptr;
}

}  // namespace

Simd best_simd() {
  for (const Simd simd : {Simd::avx512, Simd::avx2, Simd::neon}) {
    if (simd_runs_here(simd)) return simd;
  }
  return Simd::scalar;
}

const char* simd_name(Simd simd) {
  switch (simd) {
    case Simd::scalar: return "scalar";
    case Simd::neon: return "neon";
    case Simd::avx2: return "avx2";
    case Simd::avx512: return "avx512";
  }
  return "?";
}

bool simd_runs_here(Simd simd) { return find_pass(simd) != nullptr; }

bool adamw_cpu(const AdamW& args, Simd simd) {
  ensure((args.weight != nullptr) != (args.master != nullptr), "AdamW takes a bf16 weight or a plain master");
  ensure(args.weight != nullptr || args.low == nullptr, "AdamW's low bits are those of a bf16 weight");
  ensure(args.grad_bf16 == nullptr || args.grad_f32 == nullptr, "AdamW takes one gradient");
  const AdamWPass pass = find_pass(simd);
  if (pass == nullptr) {
    fail_internal(std::string("AdamW was asked for ") + simd_name(simd) + ", which this CPU cannot run");
  }
  return pass(args);
}

}  // namespace megatrain
