#include "megatrain/run/export_gguf.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/io/new_output.h"
#include "megatrain/run/export_source.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

// general.name, the name people know the source by: RUN for RUN/model and for RUN/checkpoints/step-N.
std::string name_of(const std::string& path) {
  std::error_code error;
  fs::path full = fs::weakly_canonical(fs::absolute(path), error);
  if (full.filename() == "model") full = full.parent_path();
  if (full.parent_path().filename() == "checkpoints") full = full.parent_path().parent_path();
  return full.filename().string();
}

}  // namespace

ExportedGguf export_gguf(const std::string& path, const std::string& out, GgufType type) {
  refuse_existing_output(out);
  const fs::path folder = fs::absolute(out).parent_path();
  if (!fs::is_directory(folder))
    fail_config(fmt::format("{} is not a folder; create it or choose another --out", folder.string()));
  const ExportSource source(path, true);
  if (source.tokenizer_directory.empty())
    fail_input(
        fmt::format("{} has no tokenizer any more ({} is gone), and a GGUF file holds one; put it back to export", path,
                    source.missing_tokenizer.empty() ? "data.tokenizer" : source.missing_tokenizer));
  const ModelText text = ModelText::load(source.tokenizer_directory, source.chat_template);
  if (source.types.empty() && type == GgufType::f32 && source.step >= 0 && source.stored_narrow())
    log_warn(
        fmt::format("{} has no checkpoint of its last step: its exported weights are converted to fp32, which does not "
                    "restore the fp32 master weights",
                    path));
  log_info(source.step < 0 ? fmt::format("writing {} to {}", source.from, out)
                           : fmt::format("writing {} of step {} to {}", source.from, source.step, out));
  const GgufReport report = write_gguf(
      {.path = out, .type = type, .name = name_of(source.from), .model = source.model, .tensors = source.tensors()},
      text, source.reader(), [&](const TensorSpec& tensor) { source.release(tensor); });
  return {source.from, source.step, report};
}

}  // namespace megatrain
