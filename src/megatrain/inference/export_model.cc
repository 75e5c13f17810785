#include "megatrain/inference/export_model.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/inference/loaded_model.h"
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
  if (!type) fail_config(fmt::format("--gguf is '{}'; expected f32, bf16, f16 or q8_0", text));
  return *type;
}

void check_out(const std::string& out, const char* otherwise) {
  if (out.empty()) fail_config(otherwise);
  if (out == "-") fail_config("--out is '-', which is not a file name; an export cannot be written to standard output");
}

nlohmann::json export_to_gguf(const ExportQuestion& question, GgufType type) {
  if (question.dtype) fail_config("--gguf already sets the type; leave --dtype out");
  check_out(question.out, "'megatrain export --gguf' needs --out FILE.gguf, a file that is not there yet");
  const std::string& from = question.from;
  const bool of_run = is_run_directory(from) || is_checkpoint_directory(from);
  const ExportedGguf done = export_gguf(of_run ? from : model_directory(from), question.out, type);
  return {{"gguf", question.out},
          {"from", done.from},
          {"step", done.step < 0 ? nlohmann::json() : nlohmann::json(done.step)},
          {"type", gguf_type_name(type)},
          {"architecture", done.file.architecture},
          {"tensors", done.file.tensors},
          {"bytes", done.file.bytes}};
}

void check_adapter_asked(const ExportQuestion& question) {
  if (!question.adapter) return;
  if (question.gguf)
    fail_config(
        "--adapter writes a PEFT directory, --gguf a file; for an adapter's GGUF give RUN/model and --gguf alone");
  if (find_adapter_run(question.from)) return;
  fail_config(fmt::format("--adapter: {} is no run that trains adapters; leave it out to export the whole model",
                          question.from));
}

}  // namespace

nlohmann::json export_model(const ExportQuestion& question) {
  if (question.gguf) {
    const GgufType type = gguf_option(*question.gguf);
    check_adapter_asked(question);
    return export_to_gguf(question, type);
  }
  check_out(question.out, "'megatrain export' needs --out DIR, a directory that is not there yet");
  check_adapter_asked(question);
  const ExportedRun done = export_run(question.from, question.out, type_option(question.dtype));
  return {{"model", question.out},       {"from", done.from},
          {"step", done.step},           {"bytes", done.files.tensor_bytes},
          {"shards", done.files.shards}, {"copied", done.files.copied}};
}

}  // namespace megatrain
