// AdamW bit for bit as adamw_cpu: every operation is a correctly rounded intrinsic, so the compiler contracts nothing.
#include "megatrain/base/finite.h"
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/ops/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kThreads = 256;
constexpr int kVec = 4;

__device__ uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7FFFFFFFu; }

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

// grad null: the gradient is 0.
template <bool kSplit, int kCount>
__device__ bool update_pack(const AdamWUpdate& args, const AdamWScalars& scalars, const float* grad, int64_t i) {
  float m[kCount], v[kCount], w[kCount], g[kCount] = {};
  load<float, kCount>(args.m + i, m);
  load<float, kCount>(args.v + i, v);
  if (grad) load<float, kCount>(grad, g);
  if constexpr (kSplit) {
    const auto highs = *reinterpret_cast<const Pack<uint16_t, kCount>*>(args.weight + i);
    const auto lows = *reinterpret_cast<const Pack<uint16_t, kCount>*>(args.low + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      w[j] = join(highs.v[j], lows.v[j]);
      g[j] = widen(narrow<Bf16>(g[j]));
    }
  } else {
    load<float, kCount>(args.master + i, w);
  }
  bool finite = true;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    update(scalars, g[j], m[j], v[j], w[j]);
    finite = finite && magnitude(w[j]) < kMasterFiniteBelow && magnitude(m[j]) < kFiniteBelow &&
             magnitude(v[j]) < kFiniteBelow;
  }
  store<float, kCount>(args.m + i, m);
  store<float, kCount>(args.v + i, v);
  if constexpr (kSplit) {
    Pack<uint16_t, kCount> highs, lows;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const uint32_t bits = __float_as_uint(w[j]);
      highs.v[j] = static_cast<uint16_t>((bits + 0x8000u) >> 16);
      lows.v[j] = static_cast<uint16_t>(bits);
    }
    *reinterpret_cast<Pack<uint16_t, kCount>*>(args.weight + i) = highs;
    *reinterpret_cast<Pack<uint16_t, kCount>*>(args.low + i) = lows;
  } else {
    store<float, kCount>(args.master + i, w);
  }
  return finite;
}

// Elements [begin, end) of the planes from this thread's first on, `stride` apart; grad is that of `begin`, or null.
template <bool kSplit, bool kAligned>
__device__ bool update_span(const AdamWUpdate& args, const AdamWScalars& scalars, const float* grad, int64_t begin,
                            int64_t end, int64_t first, int64_t stride) {
  bool fine = true;
  for (int64_t i = begin + first; i < end; i += stride) {
    const float* g = grad ? grad + (i - begin) : nullptr;
    if (kAligned && i + kVec <= end) {
      fine = update_pack<kSplit, kVec>(args, scalars, g, i) && fine;
    } else {
      for (int j = 0; j < kVec && i + j < end; ++j) {
        fine = update_pack<kSplit, 1>(args, scalars, g ? g + j : nullptr, i + j) && fine;
      }
    }
  }
  return fine;
}

// Only the first mark stays.
__device__ void mark(const AdamWUpdate& args) { atomicCAS(args.not_finite, 0, args.mark); }

__device__ bool read_clip(const AdamWUpdate& args, AdamWScalars& scalars) {
  scalars = args.scalars;
  scalars.clip = *args.clip;
  return !isnan(scalars.clip);
}

template <bool kSplit, bool kAligned>
__global__ void adamw_kernel(AdamWUpdate args) {
  AdamWScalars scalars;
  if (!read_clip(args, scalars)) return;
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVec;
  if (!update_span<kSplit, kAligned>(args, scalars, args.grad, 0, args.count, i, args.count)) mark(args);
}

// One block a row of the table.
template <bool kSplit, bool kAligned>
__global__ void adamw_rows_kernel(AdamWUpdate args) {
  AdamWScalars scalars;
  if (!read_clip(args, scalars)) return;
  const int64_t row = blockIdx.x;
  int64_t low = 0, high = args.row_count;  // the first of `rows` that is not below `row`
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (args.rows[middle] < row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const bool touched = low < args.row_count && args.rows[low] == row;
  const float* grad = touched ? args.grad + low * args.cols : nullptr;
  if (!update_span<kSplit, kAligned>(args, scalars, grad, row * args.cols, (row + 1) * args.cols, threadIdx.x * kVec,
                                     kThreads * kVec))
    mark(args);
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

void launch(const AdamWUpdate& args, cudaStream_t stream) {
  const bool split = args.weight != nullptr && args.low != nullptr;
  ensure(split != (args.master != nullptr), "AdamW takes a split master or a plain one");
  ensure((args.weight != nullptr) == (args.low != nullptr), "AdamW's split master has both planes");
  if (args.count == 0) return;
  const bool vectors = aligned(args.m, 16) && aligned(args.v, 16) && aligned(args.master, 16) &&
                       aligned(args.grad, 16) && aligned(args.weight, 8) && aligned(args.low, 8) &&
                       args.cols % kVec == 0;
  const auto run = [&]<bool kSplit, bool kAligned>() {
    if (args.rows) {
      adamw_rows_kernel<kSplit, kAligned><<<grid_size(args.count / args.cols), kThreads, 0, stream>>>(args);
    } else {
      adamw_kernel<kSplit, kAligned><<<grid_size(ceil_div(args.count, kThreads * kVec)), kThreads, 0, stream>>>(args);
    }
  };
  if (split && vectors) {
    run.template operator()<true, true>();
  } else if (split) {
    run.template operator()<true, false>();
  } else if (vectors) {
    run.template operator()<false, true>();
  } else {
    run.template operator()<false, false>();
  }
  check_launch();
}

}  // namespace megatrain
