#include "megatrain/run/export_run.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/chat/builtin_templates.h"
#include "megatrain/io/file.h"
#include "megatrain/io/new_output.h"
#include "megatrain/run/export_adapter.h"
#include "megatrain/run/export_source.h"

namespace megatrain {

namespace fs = std::filesystem;

namespace {

void make_parent(const std::string& out) {
  const std::string parent = fs::absolute(out.substr(0, out.find_last_not_of('/') + 1)).parent_path().string();
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) fail_io(fmt::format("cannot create {}: {}; check its parent directory.", parent, error.message()));
}

}  // namespace

ExportedRun export_run(const std::string& path, const std::string& out, std::optional<DType> type) {
  refuse_existing_output(out);
  if (const std::optional<RunFiles> run = find_adapter_run(path)) {
    if (type) fail_config(fmt::format("{} trains adapters, which are exported in fp32; leave --dtype out", run->path));
    return export_adapter_run(*run, path, out);
  }
  const ExportSource source(path, false);
  const bool widened = source.types.empty() && type == DType::f32;

  ExportRequest request{.directory = {}, .source_directory = source.tokenizer_directory};
  if (!source.chat_template.empty()) request.chat_template = read_template(source.chat_template);
  const std::vector<FileTensor> tensors = file_tensors(source.tensors());
  const auto type_of = [&](const FileTensor& tensor) {
    const std::string& name = tensor.parts.front()->name;
    const auto found = source.types.find(name);
    return type.value_or(found == source.types.end() ? source.stored_type(name) : found->second.dtype);
  };
  const KeptTensors kept = source.kept();
  for (const FileTensor& tensor : tensors)
    request.tensors.push_back({kept.name_in_files(tensor.name), type_of(tensor), tensor.shape});
  kept.declare(request.tensors);
  if (widened && source.stored_narrow())
    log_warn(
        fmt::format("{} is not stored in fp32, and no checkpoint is exported: its weights are converted to fp32, which "
                    "does not restore the fp32 master weights",
                    source.from));
  if (!source.missing_tokenizer.empty())
    log_warn(fmt::format("{} is gone: the export has no tokenizer files", source.missing_tokenizer));
  request.config_json = source.config_for(type_of(tensors.front()), type);

  log_info(fmt::format("writing {} of step {} to {}", source.from, source.step, out));
  make_parent(out);
  NewOutput output(out);
  request.directory = output.path();
  ModelExport model_export(std::move(request));
  for (const FileTensor& tensor : tensors) {
    const DType as = type_of(tensor);
    const PartReader read = source.reader(as);
    for (const FilePiece& piece : cut_file_tensor(tensor)) {
      const std::vector<std::byte> bytes = piece_bytes(piece, as, read);
      model_export.write(kept.name_in_files(tensor.name), piece.begin * dtype_bytes(as), bytes.data(),
                         std::ssize(bytes));
    }
    for (const TensorSpec* part : tensor.parts) source.release(*part);
  }
  source.check_whole();
  kept.copy([&](const std::string& name, int64_t offset, const std::byte* data, int64_t bytes) {
    model_export.write(name, offset, data, bytes);
  });
  ExportReport files = model_export.finish();
  output.put_in_place();
  return {source.from, source.step, std::move(files)};
}

}  // namespace megatrain
