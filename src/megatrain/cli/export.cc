// `megatrain export`: writes a model for serving, as a Hugging Face directory or a GGUF file.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/cli/loaded_model.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/run/export_adapter.h"
#include "megatrain/run/export_gguf.h"
#include "megatrain/run/export_run.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

namespace {

std::optional<DType> type_option(const std::optional<std::string>& text) {
  if (!text) return {};
  if (*text == "bf16") return DType::bf16;
  if (*text == "fp32") return DType::f32;
  fail_config(fmt::format("--dtype is '{}'; expected bf16 or fp32", *text));
}

GgufType gguf_option(const std::string& text) {
  const std::optional<GgufType> type = parse_gguf_type(text);
  if (!type)
    fail_config(
        fmt::format("--gguf is '{}'; expected f32, bf16, f16 or q8_0. llama.cpp makes smaller ones: "
                    "llama-quantize MODEL-bf16.gguf MODEL.gguf Q4_K_M",
                    text));
  return *type;
}

void check_out(const std::optional<std::string>& out) {
  if (out == "-") fail_config("--out is '-', which is not a file name; an export cannot be written to standard output");
}

int export_to_gguf(const Arguments& arguments, const std::string& from, GgufType type) {
  if (arguments.option("--dtype")) fail_config("--gguf already sets the type; leave --dtype out");
  const std::optional<std::string> out = arguments.option("--out");
  if (!out || out->empty())
    fail_config("'megatrain export --gguf' needs --out FILE.gguf, a file that is not there yet");
  check_out(out);
  const bool of_run = is_run_directory(from) || is_checkpoint_directory(from);
  const ExportedGguf done = export_gguf(of_run ? from : model_directory(from), *out, type);
  if (arguments.json()) {
    fmt::print("{}\n", json_text(nlohmann::json{{"gguf", *out},
                                                {"from", done.from},
                                                {"step", done.step < 0 ? nlohmann::json() : nlohmann::json(done.step)},
                                                {"type", gguf_type_name(type)},
                                                {"architecture", done.file.architecture},
                                                {"tensors", done.file.tensors},
                                                {"bytes", done.file.bytes}}));
  } else {
    fmt::print("{}\n", *out);
  }
  return 0;
}

// --adapter says what is expected of a run; a run that trains adapters exports them in any case.
void check_adapter_asked(const Arguments& arguments, const std::string& from) {
  if (!arguments.flag("--adapter")) return;
  if (arguments.option("--gguf"))
    fail_config(
        "--adapter writes a PEFT directory, --gguf a file; for an adapter's GGUF give RUN/model and --gguf alone");
  if (find_adapter_run(from)) return;
  fail_config(
      fmt::format("--adapter: {} is no run that trains adapters; leave it out to export the whole model", from));
}

}  // namespace

int verb_export(const Arguments& arguments) {
  const std::string& from = arguments.one("RUN or CHECKPOINT");
  if (const std::optional<std::string> type = arguments.option("--gguf")) {
    check_adapter_asked(arguments, from);
    return export_to_gguf(arguments, from, gguf_option(*type));
  }
  const std::optional<std::string> out = arguments.option("--out");
  if (!out || out->empty()) fail_config("'megatrain export' needs --out DIR, a directory that is not there yet");
  check_out(out);
  check_adapter_asked(arguments, from);
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
