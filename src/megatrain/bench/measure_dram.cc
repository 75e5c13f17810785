// Host memory under the optimizer's own mix, and the cores under int8 moments. Per parameter, 14 bytes are read (bf16
// gradient, fp32 m and v, bf16 weight, low bits) and 12 written in place (all but the gradient). Measured with a loop
// that hardly computes, and with AdamW.
#include <algorithm>
#include <cstring>
#include <functional>

#include "megatrain/base/clock.h"
#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/bench/measure.h"
#include "megatrain/device/device.h"
#include "megatrain/host/thread_team.h"
#include "megatrain/optim/scalars.h"

namespace megatrain {

namespace {

constexpr int64_t kHeldBytes = 14;         // per parameter
constexpr int64_t kPieceElements = 65536;  // as in the updater

struct DramPlanes {
  uint16_t* grad;
  float* m;
  float* v;
  uint16_t* weight;
  uint16_t* low;
};

// Reads every byte and writes all but the gradient's, in 64-bit words so that arithmetic is not the limit.
void plain_pass(const DramPlanes& p, int64_t begin, int64_t count) {
  const auto* g = reinterpret_cast<const uint64_t*>(p.grad + begin);
  auto* m = reinterpret_cast<uint64_t*>(p.m + begin);
  auto* v = reinterpret_cast<uint64_t*>(p.v + begin);
  auto* w = reinterpret_cast<uint64_t*>(p.weight + begin);
  auto* low = reinterpret_cast<uint64_t*>(p.low + begin);
  for (int64_t i = 0; i < count / 4; ++i) {
    const uint64_t x = g[i];
    m[2 * i] ^= x;
    m[2 * i + 1] ^= x;
    v[2 * i] ^= x;
    v[2 * i + 1] ^= x;
    w[i] ^= x;
    low[i] ^= x;
  }
}

// Bytes per second, the best of a few rounds. `beside` is called before each round to start concurrent work.
double rate(
    ThreadTeam& team, int64_t count, const std::function<void(int64_t begin, int64_t count)>& pass,
    const std::function<void()>& beside = [] {}) {
  constexpr int kRounds = 5;
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    beside();
    const double start = now_s();
    team.parallel_for((count + kPieceElements - 1) / kPieceElements, [&](int64_t piece) {
      const int64_t begin = piece * kPieceElements;
      pass(begin, std::min(kPieceElements, count - begin));
    });
    best = std::max(best, static_cast<double>(kDramMovedBytes * count) / (now_s() - start));
  }
  return best;
}

// Parameters per second with int8 moments; their codes use the memory of the fp32 moments.
double int8_rate(ThreadTeam& team, const DramPlanes& planes, int64_t count, const AdamWScalars& scalars) {
  const size_t blocks = static_cast<size_t>(ceil_div(count, kStateBlock));
  std::vector<float> m_scales(blocks), v_scales(blocks);
  const auto pass = [&](int64_t begin, int64_t size) {
    adamw_cpu({.scalars = scalars,
               .count = size,
               .grad_bf16 = reinterpret_cast<const bf16*>(planes.grad + begin),
               .m = reinterpret_cast<uint8_t*>(planes.m) + begin,
               .v = reinterpret_cast<uint8_t*>(planes.v) + begin,
               .weight = reinterpret_cast<bf16*>(planes.weight + begin),
               .low = planes.low + begin,
               .coded = {.moments = MomentFormat::int8,
                         .m_scales = m_scales.data() + begin / kStateBlock,
                         .v_scales = v_scales.data() + begin / kStateBlock}},
              best_simd());
  };
  return rate(team, count, pass) / static_cast<double>(kDramMovedBytes);
}

}  // namespace

DramRates measure_dram(int64_t bytes, int64_t asked, LinkTimer* link) {
  const int64_t count = std::max<int64_t>(bytes / kHeldBytes / kPieceElements, 1) * kPieceElements;
  const std::vector<int> cpus = usable_cpus();
  const int threads = team_size(asked);

  const std::unique_ptr<Device> host = make_cpu_device();
  const auto plane = [&](int64_t width) { return host->allocate_host(static_cast<size_t>(count * width), "dram"); };
  const Buffer grad = plane(2), m = plane(4), v = plane(4), weight = plane(2), low = plane(2);
  const DramPlanes planes{reinterpret_cast<uint16_t*>(grad.data()), reinterpret_cast<float*>(m.data()),
                          reinterpret_cast<float*>(v.data()), reinterpret_cast<uint16_t*>(weight.data()),
                          reinterpret_cast<uint16_t*>(low.data())};
  ThreadTeam team(threads, cpus);
  const Simd simd = best_simd();
  const double plain = rate(team, count, [&](int64_t begin, int64_t size) { plain_pass(planes, begin, size); });

  // values like those of a run
  team.parallel_for(count / kPieceElements, [&](int64_t piece) {
    for (int64_t i = piece * kPieceElements; i < (piece + 1) * kPieceElements; ++i) {
      planes.grad[i] = static_cast<uint16_t>(0x3A00 + i % 251);
      planes.m[i] = 1e-4f * static_cast<float>(i % 127 - 63);
      planes.v[i] = 1e-6f * static_cast<float>(i % 89 + 1);
      planes.weight[i] = static_cast<uint16_t>(0x3C00 + i % 509);
      planes.low[i] = static_cast<uint16_t>(i * 40503);
    }
  });
  const AdamWScalars scalars = adamw_scalars({.lr = 1e-5, .weight_decay = 0.01, .t = 10});
  const auto adamw_pass = [&](int64_t begin, int64_t size) {
    adamw_cpu({.scalars = scalars,
               .count = size,
               .grad_bf16 = reinterpret_cast<const bf16*>(planes.grad + begin),
               .m = planes.m + begin,
               .v = planes.v + begin,
               .weight = reinterpret_cast<bf16*>(planes.weight + begin),
               .low = planes.low + begin},
              simd);
  };
  DramRates rates{.bytes = count * kHeldBytes,
                  .threads = threads,
                  .plain_bytes_per_s = plain,
                  .adamw_bytes_per_s = rate(team, count, adamw_pass),
                  .int8_updates_per_s = int8_rate(team, planes, count, scalars)};
  if (link) {
    constexpr int kPasses = 4;  // enough to outlast a round
    rates.beside_dma_bytes_per_s = rate(team, count, adamw_pass, [&] {
      link->wait();
      for (int pass = 0; pass < kPasses; ++pass) link->start(64 * kMiB);
    });
    link->wait();
  }
  return rates;
}

}  // namespace megatrain
