// AdamW with the same bits as adamw_cpu: every operation is a correctly rounded intrinsic, which the compiler never
// fuses.
#include "megatrain/base/finite.h"
#include "megatrain/base/stochastic.h"
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"
#include "megatrain/tensor/moment_codes.h"

namespace megatrain {

namespace {

constexpr int kThreads = 256;
constexpr int kVec = 4;

__device__ uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7FFFFFFFu; }

__device__ float flush(float x) { return fabsf(x) < 0x1.0p-100f ? 0.0f : x; }

// One element: m, v and w hold the old values on entry and the new ones on return.
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

// If `grad` is null, the gradient is grad_bf16, or 0.
template <bool kSplit, int kCount>
__device__ bool update_pack(const AdamWUpdate& args, const AdamWScalars& scalars, const float* grad, int64_t i) {
  float m[kCount], v[kCount], w[kCount], g[kCount] = {};
  float* const at_m = static_cast<float*>(args.m) + i;
  float* const at_v = static_cast<float*>(args.v) + i;
  load<float, kCount>(at_m, m);
  load<float, kCount>(at_v, v);
  if (grad) load<float, kCount>(grad, g);
  if (args.grad_bf16) load<Bf16, kCount>(reinterpret_cast<const Bf16*>(args.grad_bf16) + i, g);
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
  store<float, kCount>(at_m, m);
  store<float, kCount>(at_v, v);
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

// Elements [begin, end) of the planes, starting at this thread's `first`, `stride` apart. `grad` is that of `begin`, or
// null.
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

// Only the first mark is kept.
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

// The gradient of a row of the table; null if it has none.
__device__ const float* gradient_of(const AdamWUpdate& args, int64_t row) {
  int64_t low = 0, high = args.row_count;  // lower bound of `row` in `rows`
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (args.rows[middle] < row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < args.row_count && args.rows[low] == row ? args.grad + low * args.cols : nullptr;
}

// One block per row of the table.
template <bool kSplit, bool kAligned>
__global__ void adamw_rows_kernel(AdamWUpdate args) {
  AdamWScalars scalars;
  if (!read_clip(args, scalars)) return;
  const int64_t row = blockIdx.x;
  const float* grad = gradient_of(args, row);
  if (!update_span<kSplit, kAligned>(args, scalars, grad, row * args.cols, (row + 1) * args.cols, threadIdx.x * kVec,
                                     kThreads * kVec))
    mark(args);
}

// The code of a magnitude that is at most `scale`: the number of bounds, each times the scale, that are below it.
template <int kBits>
__device__ uint32_t nearest_code(float magnitude, float scale, const float* bounds) {
  uint32_t code = 0;
#pragma unroll
  for (int bit = kBits - 1; bit >= 0; --bit) {
    const uint32_t next = code + (1u << bit);
    if (magnitude > __fmul_rn(scale, bounds[next - 1])) code = next;
  }
  return code;
}

struct CodeTables {
  float first_level[128], first_bound[128], second_level[256], second_bound[256];

  __device__ void fill() {
    static_assert(kThreads == 256);
    const uint32_t code = threadIdx.x;
    second_level[code] = moment_level(kSecondMomentCode, code);
    second_bound[code] = moment_bound(kSecondMomentCode, code);
    if (code < 128) {
      first_level[code] = moment_level(kFirstMomentCode, code);
      first_bound[code] = moment_bound(kFirstMomentCode, code);
    }
    __syncthreads();
  }
};

__device__ uint16_t by_chance(float x, uint32_t random16) {
  return static_cast<uint16_t>(round_by_chance(__float_as_uint(x), random16));
}

// State that is not exact: one thread per element. A thread block takes one block of moments after the other.
template <MomentFormat kMoments>
__global__ void adamw_coded_kernel(AdamWUpdate args, int64_t row, int64_t row_blocks, int64_t blocks) {
  static_assert(kThreads == kStateBlock);
  __shared__ CodeTables tables;
  __shared__ float warps[kThreads / 32];
  AdamWScalars scalars;
  if (!read_clip(args, scalars)) return;
  if constexpr (kMoments == MomentFormat::int8) tables.fill();
  const uint64_t key = mix_key(scalars.random, args.coded.name_hash), weight_key = mix_key(key, 1);
  const bool chance = args.weight != nullptr && args.low == nullptr;
  bool fine = true;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t r = block / row_blocks, column = block % row_blocks * kStateBlock + threadIdx.x;
    const int64_t i = r * row + column;
    const bool here = column < row && i < args.count;
    float m = 0, v = 0, w = 0, g = 0;
    if (here) {
      const float* grads = args.rows ? gradient_of(args, r) : args.grad ? args.grad + r * row : nullptr;
      if (grads) g = grads[column];
      if (args.grad_bf16) g = __uint_as_float(static_cast<uint32_t>(args.grad_bf16[i].bits) << 16);
      if (args.weight) g = widen(narrow<Bf16>(g));
      if (chance) {
        w = __uint_as_float(static_cast<uint32_t>(args.weight[i].bits) << 16);
      } else {
        w = args.weight ? join(args.weight[i].bits, args.low[i]) : args.master[i];
      }
      if constexpr (kMoments == MomentFormat::fp32) {
        m = static_cast<float*>(args.m)[i];
        v = static_cast<float*>(args.v)[i];
      } else if constexpr (kMoments == MomentFormat::bf16) {
        m = __uint_as_float(static_cast<uint32_t>(static_cast<uint16_t*>(args.m)[i]) << 16);
        v = __uint_as_float(static_cast<uint32_t>(static_cast<uint16_t*>(args.v)[i]) << 16);
      } else {
        m = decode_first_moment(static_cast<uint8_t*>(args.m)[i], args.coded.m_scales[block], tables.first_level);
        v = decode_second_moment(static_cast<uint8_t*>(args.v)[i], args.coded.v_scales[block], tables.second_level);
      }
      update(scalars, g, m, v, w);
      const uint32_t moment_limit = kMoments == MomentFormat::bf16 ? kStochasticFiniteBelow : kFiniteBelow;
      fine = fine && magnitude(w) < (chance ? kStochasticFiniteBelow : kMasterFiniteBelow) &&
             magnitude(m) < moment_limit && magnitude(v) < moment_limit;
    }
    const uint32_t element = static_cast<uint32_t>(args.coded.first + i);
    if constexpr (kMoments == MomentFormat::int8) {
      const float m_scale = block_max(fabsf(m), warps), v_scale = block_max(v, warps);
      if (here) {
        const uint32_t first = nearest_code<kFirstMomentCode.bits>(fabsf(m), m_scale, tables.first_bound);
        static_cast<uint8_t*>(args.m)[i] = static_cast<uint8_t>(first == 0 || m >= 0 ? first : first | kNegativeCode);
        static_cast<uint8_t*>(args.v)[i] =
            static_cast<uint8_t>(nearest_code<kSecondMomentCode.bits>(v, v_scale, tables.second_bound));
      }
      if (threadIdx.x == 0) {
        args.coded.m_scales[block] = m_scale;
        args.coded.v_scales[block] = v_scale;
      }
    }
    if (!here) continue;
    if constexpr (kMoments == MomentFormat::fp32) {
      static_cast<float*>(args.m)[i] = m;
      static_cast<float*>(args.v)[i] = v;
    } else if constexpr (kMoments == MomentFormat::bf16) {
      const uint32_t random = element_bits(key, element);
      static_cast<uint16_t*>(args.m)[i] = by_chance(m, random & 0xFFFFu);
      static_cast<uint16_t*>(args.v)[i] = by_chance(v, random >> 16);
    }
    if (chance) {
      args.weight[i].bits = by_chance(w, element_bits(weight_key, element) & 0xFFFFu);
    } else if (args.weight) {
      const uint32_t bits = __float_as_uint(w);
      args.weight[i].bits = static_cast<uint16_t>((bits + 0x8000u) >> 16);
      args.low[i] = static_cast<uint16_t>(bits);
    } else {
      args.master[i] = w;
    }
  }
  if (!fine) mark(args);
}

void launch_coded(const AdamWUpdate& args, cudaStream_t stream) {
  const int64_t row = args.rows ? args.cols : args.coded.row > 0 ? args.coded.row : args.count;
  const int64_t row_blocks = ceil_div(row, kStateBlock), blocks = args.count / row * row_blocks;
  constexpr int64_t kMostBlocks = 4096;  // enough for any GPU; each block reuses its tables
  const unsigned grid = grid_size(blocks < kMostBlocks ? blocks : kMostBlocks);
  const auto run = [&]<MomentFormat kMoments>() {
    adamw_coded_kernel<kMoments><<<grid, kThreads, 0, stream>>>(args, row, row_blocks, blocks);
  };
  switch (args.coded.moments) {
    case MomentFormat::fp32: run.template operator()<MomentFormat::fp32>(); break;
    case MomentFormat::bf16: run.template operator()<MomentFormat::bf16>(); break;
    case MomentFormat::int8: run.template operator()<MomentFormat::int8>(); break;
  }
  check_launch();
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace

void launch(const AdamWUpdate& args, cudaStream_t stream) {
  const bool split = args.weight != nullptr;
  ensure(split != (args.master != nullptr), "AdamW takes a bf16 weight or a plain master");
  ensure(split || args.low == nullptr, "AdamW's low bits are those of a bf16 weight");
  if (args.count == 0) return;
  if (!args.exact()) return launch_coded(args, stream);
  const bool vectors = aligned(args.m, 16) && aligned(args.v, 16) && aligned(args.master, 16) &&
                       aligned(args.grad, 16) && aligned(args.grad_bf16, 8) && aligned(args.weight, 8) &&
                       aligned(args.low, 8) && args.cols % kVec == 0;
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
