// `bench dram`: host memory under the optimizer's mix of reads and writes (bench/measure_dram.cc).
#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/table.h"
#include "megatrain/base/units.h"
#include "megatrain/bench/bench.h"
#include "megatrain/bench/measure.h"
#include "megatrain/config/arguments.h"
#include "megatrain/host/memory.h"
#include "megatrain/ops/adamw.h"

namespace megatrain {

BenchResult bench_dram(const Arguments& arguments) {
  arguments.none();
  const TrainConfig config =
      parse_config("", "bench dram", arguments.overrides(), {.model = false, .data = false, .steps = false});
  const auto given = arguments.option("--gib");
  const int64_t bytes = given ? gib_option(*given) : std::min(8 * kGiB, host_memory_available() / 4);
  if (const int64_t there = host_memory_available(); bytes > there - there / 16)
    fail(ExitCode::cannot_fit, fmt::format("--gib asks for {}, and {} of memory are free; give less",
                                           format_bytes(bytes), format_bytes(there)));
  const DramRates rates = measure_dram(bytes, config.threads, nullptr);
  const double plain = rates.plain_bytes_per_s, adamw = rates.adamw_bytes_per_s;

  Table table({"pass", "GB/s", "parameters/s"});
  for (const auto& [name, value] : {std::pair<const char*, double>{"plain loop", plain}, {"AdamW", adamw}})
    table.row({name, fmt::format("{:.1f}", value * 1e-9), fmt::format("{:.3g}", value / kDramMovedBytes)});
  return {.json = {{"bytes", rates.bytes},
                   {"threads", rates.threads},
                   {"simd", simd_name(best_simd())},
                   {"plain_bytes_per_s", plain},
                   {"adamw_bytes_per_s", adamw},
                   {"adamw_percent", 100 * adamw / plain}},
          .text = table.text() + fmt::format("AdamW ({}) reaches {:.0f}% of the plain loop on {} threads\n",
                                             simd_name(best_simd()), 100 * adamw / plain, rates.threads)};
}

}  // namespace megatrain
