#include "megatrain/ops/unpack.h"

#include <cstring>

#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

void unpack_weights(const Context& context, const UnpackWeights& args) {
  static_assert(kChunk % kMxfp4Block == 0);
  const int64_t width = dtype_bytes(args.dtype), chunks = ceil_div(args.elements, kChunk);
  context.team.parallel_for(args.parts * chunks, [&](int64_t i) {
    const std::byte* packed = args.packed + i / chunks * args.packed_stride;
    const int64_t begin = i % chunks * kChunk, count = std::min<int64_t>(kChunk, args.elements - begin);
    std::byte* out = args.out + i / chunks * args.out_stride + begin * width;
    if (args.packing == WeightPacking::none) {
      std::memcpy(out, packed + begin * width, static_cast<size_t>(count * width));
      return;
    }
    Chunk values;
    const std::byte* scales = packed + packed_scales_at(args.packing, 1, args.elements);
    if (args.packing == WeightPacking::fp8) {
      decode_fp8(packed + begin, reinterpret_cast<const float*>(scales), args.cols, begin, count, values.data());
    } else {
      decode_mxfp4(packed, scales, begin, count, values.data());
    }
    narrow(values.data(), vector(out, args.dtype, count), 0, 0, count);
  });
}

}  // namespace megatrain::cpu
