// `bench link`: what copies between host and device reach, each way alone and both at once.
#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"
#include "megatrain/base/table.h"
#include "megatrain/base/units.h"
#include "megatrain/bench/bench.h"
#include "megatrain/config/arguments.h"
#include "megatrain/train/setup.h"

namespace megatrain {

namespace {

class Link {
 public:
  Link(Device& device, int64_t bytes)
      : bytes_(bytes),
        down_(device.make_stream("h2d")),
        up_(device.make_stream("d2h")),
        host_from_(device.allocate_host(static_cast<size_t>(bytes), "link")),
        host_to_(device.allocate_host(static_cast<size_t>(bytes), "link")),
        device_from_(device.allocate(static_cast<size_t>(bytes), "link")),
        device_to_(device.allocate(static_cast<size_t>(bytes), "link")) {}

  // Bytes a second, the sum of both ways, in pieces of `piece` bytes; the best of a few rounds.
  double rate(int64_t piece, bool h2d, bool d2h) {
    constexpr int kRounds = 4;  // the first warms up
    constexpr int64_t kRoundBytes = kGiB;
    const int64_t passes = std::max<int64_t>(1, std::min(kRoundBytes, 4 * bytes_) / bytes_);
    double best = 0;
    for (int round = 0; round < kRounds; ++round) {
      const double start = now_s();
      for (int64_t pass = 0; pass < passes; ++pass) {
        for (int64_t at = 0; at < bytes_; at += piece) {
          const size_t size = static_cast<size_t>(std::min(piece, bytes_ - at));
          if (h2d) down_->copy(device_to_.data() + at, host_from_.data() + at, size);
          if (d2h) up_->copy(host_to_.data() + at, device_from_.data() + at, size);
        }
      }
      down_->synchronize();
      up_->synchronize();
      const double moved = static_cast<double>(passes * bytes_) * ((h2d ? 1 : 0) + (d2h ? 1 : 0));
      if (round > 0) best = std::max(best, moved / (now_s() - start));
    }
    return best;
  }

 private:
  int64_t bytes_;
  std::unique_ptr<Stream> down_, up_;
  Buffer host_from_, host_to_, device_from_, device_to_;
};

}  // namespace

BenchResult bench_link(const Arguments& arguments) {
  arguments.none();
  const TrainConfig config =
      parse_config("", "bench link", arguments.overrides(), {.model = false, .data = false, .steps = false});
  Machine machine = open_machine(config.device, config.threads);
  const bool cuda = machine.device->kind() == DeviceKind::cuda;
  const auto given = arguments.option("--largest");
  const int64_t largest = given ? parse_bytes(*given) : cuda ? kGiB : 64 * kMiB;
  if (largest < 1) fail_config(fmt::format("--largest is '{}'; expected a size such as 64MiB", *given));

  Link link(*machine.device, largest);
  Table table({"piece", "h2d GB/s", "d2h GB/s", "both GB/s"});
  nlohmann::json pieces = nlohmann::json::array();
  for (const int64_t piece : {kMiB, 64 * kMiB, kGiB}) {
    if (piece > largest && piece != kMiB) continue;
    const int64_t size = std::min(piece, largest);
    const double h2d = link.rate(size, true, false), d2h = link.rate(size, false, true),
                 both = link.rate(size, true, true);
    pieces.push_back({{"piece", size}, {"h2d_bytes_per_s", h2d}, {"d2h_bytes_per_s", d2h}, {"both_bytes_per_s", both}});
    table.row({format_bytes(size), fmt::format("{:.1f}", h2d * 1e-9), fmt::format("{:.1f}", d2h * 1e-9),
               fmt::format("{:.1f}", both * 1e-9)});
  }
  return {.json = {{"pieces", pieces}, {"machine", {{"device", machine.device->name()}}}}, .text = table.text()};
}

}  // namespace megatrain
