// `megatrain merge`: an adapter and its base as one whole model.
#include <optional>
#include <string>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/run/merge_adapter.h"

namespace megatrain {

int verb_merge(const Arguments& arguments) {
  if (arguments.plain().size() != 2)
    fail_config("'megatrain merge' takes BASE and ADAPTER: a model directory or Org/Name, and a PEFT directory");
  const std::optional<std::string> out = arguments.option("--out"), dtype = arguments.option("--dtype");
  if (!out || out->empty()) fail_config("'megatrain merge' needs --out DIR, a directory that is not there yet");
  if (dtype && dtype != "bf16" && dtype != "fp32")
    fail_config(fmt::format("--dtype is '{}'; expected bf16 or fp32", *dtype));
  std::optional<DType> type;
  if (dtype) type = *dtype == "fp32" ? DType::f32 : DType::bf16;
  const std::string base = find_model(arguments.plain()[0], ModelParts::weights);
  const std::string adapter = find_model(arguments.plain()[1], ModelParts::adapter);
  const MergedModel merged = merge_adapter(base, adapter, *out, type, 0);
  log_info(fmt::format("{} of {} adapted weights keep their value: rounding hides the change",
                       format_count(merged.still), format_count(merged.adapted)));
  if (arguments.json()) {
    fmt::print("{}\n", json_text(nlohmann::json{{"model", *out},
                                                {"bytes", merged.files.tensor_bytes},
                                                {"shards", merged.files.shards},
                                                {"copied", merged.files.copied},
                                                {"adapted", merged.adapted},
                                                {"unmoved", merged.still}}));
  } else {
    fmt::print("{}\n", *out);
  }
  return 0;
}

}  // namespace megatrain
