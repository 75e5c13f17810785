#include <algorithm>

#include "megatrain/base/clock.h"
#include "megatrain/base/units.h"
#include "megatrain/bench/measure.h"

namespace megatrain {

LinkTimer::LinkTimer(Device& device, int64_t bytes)
    : bytes_(bytes),
      down_(device.make_stream("h2d")),
      up_(device.make_stream("d2h")),
      host_from_(device.allocate_host(static_cast<size_t>(bytes), "link")),
      host_to_(device.allocate_host(static_cast<size_t>(bytes), "link")),
      device_from_(device.allocate(static_cast<size_t>(bytes), "link")),
      device_to_(device.allocate(static_cast<size_t>(bytes), "link")) {}

void LinkTimer::enqueue(int64_t piece, bool h2d, bool d2h) {
  for (int64_t at = 0; at < bytes_; at += piece) {
    const size_t size = static_cast<size_t>(std::min(piece, bytes_ - at));
    if (h2d) down_->copy(device_to_.data() + at, host_from_.data() + at, size);
    if (d2h) up_->copy(host_to_.data() + at, device_from_.data() + at, size);
  }
}

void LinkTimer::start(int64_t piece) { enqueue(piece, true, true); }

void LinkTimer::wait() {
  down_->synchronize();
  up_->synchronize();
}

double LinkTimer::rate(int64_t piece, bool h2d, bool d2h) {
  constexpr int kRounds = 4;  // the first is a warm-up
  constexpr int64_t kRoundBytes = kGiB;
  const int64_t passes = std::max<int64_t>(1, std::min(kRoundBytes, 4 * bytes_) / bytes_);
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double start = now_s();
    for (int64_t pass = 0; pass < passes; ++pass) enqueue(piece, h2d, d2h);
    wait();
    const double moved = static_cast<double>(passes * bytes_) * ((h2d ? 1 : 0) + (d2h ? 1 : 0));
    if (round > 0) best = std::max(best, moved / (now_s() - start));
  }
  return best;
}

}  // namespace megatrain
