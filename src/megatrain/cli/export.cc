// `megatrain export`: a model people can serve from a run, wherever it stands.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/run/export_run.h"

namespace megatrain {

namespace {

std::optional<DType> type_option(const std::optional<std::string>& text) {
  if (!text) return {};
  if (*text == "bf16") return DType::bf16;
  if (*text == "fp32") return DType::f32;
  fail_config(fmt::format("--dtype is '{}'; expected bf16 or fp32", *text));
}

}  // namespace

int verb_export(const Arguments& arguments) {
  const std::string& from = arguments.one("RUN or CHECKPOINT");
  const std::optional<std::string> out = arguments.option("--out");
  if (!out || out->empty()) fail_config("'megatrain export' needs --out DIR, a directory that is not there yet");
  const ExportedRun done = export_run(from, *out, type_option(arguments.option("--dtype")));
  if (arguments.json()) {
    fmt::print("{}\n", json_text(nlohmann::json{{"model", *out},
                                                {"from", done.from},
                                                {"step", done.step},
                                                {"bytes", done.files.tensor_bytes},
                                                {"shards", done.files.shards},
                                                {"copied", done.files.copied}}));
  } else {
    fmt::print("{}\n", *out);
  }
  return 0;
}

}  // namespace megatrain
