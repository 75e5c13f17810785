// `bench link`: the speed of copies between host and device, in each direction alone and in both at once.
#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/table.h"
#include "megatrain/base/units.h"
#include "megatrain/bench/bench.h"
#include "megatrain/bench/measure.h"
#include "megatrain/config/arguments.h"
#include "megatrain/train/setup.h"

namespace megatrain {

BenchResult bench_link(const Arguments& arguments) {
  arguments.none();
  const TrainConfig config =
      parse_config("", "bench link", arguments.overrides(), {.model = false, .data = false, .steps = false});
  Machine machine = open_machine(config.device, config.threads);
  const bool cuda = machine.device->kind() == DeviceKind::cuda;
  const auto given = arguments.option("--largest");
  const int64_t largest = given ? parse_bytes(*given) : cuda ? kGiB : 64 * kMiB;
  if (largest < 1) fail_config(fmt::format("--largest is '{}'; expected a size such as 64MiB", *given));

  LinkTimer link(*machine.device, largest);
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
