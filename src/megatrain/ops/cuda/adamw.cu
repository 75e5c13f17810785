// AdamW bit for bit as adamw_cpu: every operation is a correctly rounded intrinsic, so the compiler contracts nothing.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/ops/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kThreads = 256;
constexpr int kVec = 4;

// |u| below this: u and hi = (u + 0x8000) >> 16 are both finite.
constexpr uint32_t kFiniteBelow = 0x7F800000u - 0x8000u;

__device__ float flush(float x) { return fabsf(x) < 0x1.0p-100f ? 0.0f : x; }

// One element: m, v and w are the old values on entry, the new ones on return.
__device__ void update(const AdamWScalars& s, float g, float& m, float& v, float& w) {
  const float scaled = __fmul_rn(g, s.clip);
  const float m1 = __fmaf_rn(__fsub_rn(scaled, m), s.one_minus_beta1, m);
  const float v1 = __fmaf_rn(__fmul_rn(scaled, scaled), s.one_minus_beta2, __fmul_rn(v, s.beta2));
  const float d = __fmaf_rn(__fsqrt_rn(v1), s.inv_sqrt_bias2, s.eps);
  w = __fmaf_rn(-s.step_size, __fdiv_rn(m1, d), __fmul_rn(w, s.decay));
  m = flush(m1);
  v = flush(v1);
}

__device__ float join(uint16_t high, uint16_t low) {
  const uint32_t extended = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(low)));
  return __uint_as_float((static_cast<uint32_t>(high) << 16) + extended);
}

enum class Grad { none, bf16, f32 };

template <Grad kGrad, bool kSplit, int kCount>
__device__ bool update_pack(const AdamW& args, int64_t i) {
  float m[kCount], v[kCount], w[kCount], g[kCount] = {};
  uint16_t high[kCount], low[kCount];
  load<float, kCount>(args.m + i, m);
  load<float, kCount>(args.v + i, v);
  if constexpr (kGrad == Grad::bf16) load<Bf16, kCount>(reinterpret_cast<const Bf16*>(args.grad_bf16) + i, g);
  if constexpr (kGrad == Grad::f32) load<float, kCount>(args.grad_f32 + i, g);
  if constexpr (kSplit) {
    const auto highs = *reinterpret_cast<const Pack<uint16_t, kCount>*>(args.weight + i);
    const auto lows = *reinterpret_cast<const Pack<uint16_t, kCount>*>(args.low + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) w[j] = join(highs.v[j], lows.v[j]);
  } else {
    load<float, kCount>(args.master + i, w);
  }
  bool finite = true;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    update(args.scalars, g[j], m[j], v[j], w[j]);
    const uint32_t bits = __float_as_uint(w[j]);
    finite = finite && (bits & 0x7FFFFFFFu) < kFiniteBelow;
    high[j] = static_cast<uint16_t>((bits + 0x8000u) >> 16);
    low[j] = static_cast<uint16_t>(bits);
  }
  store<float, kCount>(args.m + i, m);
  store<float, kCount>(args.v + i, v);
  if constexpr (kSplit) {
    Pack<uint16_t, kCount> highs, lows;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      highs.v[j] = high[j];
      lows.v[j] = low[j];
    }
    *reinterpret_cast<Pack<uint16_t, kCount>*>(args.weight + i) = highs;
    *reinterpret_cast<Pack<uint16_t, kCount>*>(args.low + i) = lows;
  } else {
    store<float, kCount>(args.master + i, w);
  }
  return finite;
}

template <Grad kGrad, bool kSplit, bool kAligned>
__global__ void adamw_kernel(AdamW args, int32_t* finite) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVec;
  bool fine = true;
  if (kAligned && i + kVec <= args.count) {
    fine = update_pack<kGrad, kSplit, kVec>(args, i);
  } else {
    for (int64_t j = i; j < i + kVec && j < args.count; ++j) fine = update_pack<kGrad, kSplit, 1>(args, j) && fine;
  }
  if (!fine) *finite = 0;
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

void launch(const AdamW& args, int32_t* finite, cudaStream_t stream) {
  const bool split = args.weight != nullptr && args.low != nullptr;
  ensure(split != (args.master != nullptr), "AdamW takes a split master or a plain one");
  ensure((args.weight != nullptr) == (args.low != nullptr), "AdamW's split master has both planes");
  ensure(args.grad_bf16 == nullptr || args.grad_f32 == nullptr, "AdamW takes one gradient");
  if (args.count == 0) return;
  const bool vectors = aligned(args.m, 16) && aligned(args.v, 16) && aligned(args.master, 16) &&
                       aligned(args.grad_f32, 16) && aligned(args.grad_bf16, 8) && aligned(args.weight, 8) &&
                       aligned(args.low, 8);
  const auto run = [&]<Grad kGrad, bool kSplit>() {
    const auto kernel = vectors ? adamw_kernel<kGrad, kSplit, true> : adamw_kernel<kGrad, kSplit, false>;
    kernel<<<grid_size(ceil_div(args.count, kThreads * kVec)), kThreads, 0, stream>>>(args, finite);
  };
  const auto with_master = [&]<Grad kGrad>() {
    if (split) {
      run.template operator()<kGrad, true>();
    } else {
      run.template operator()<kGrad, false>();
    }
  };
  if (args.grad_bf16) {
    with_master.template operator()<Grad::bf16>();
  } else if (args.grad_f32) {
    with_master.template operator()<Grad::f32>();
  } else {
    with_master.template operator()<Grad::none>();
  }
  check_launch();
}

}  // namespace megatrain
