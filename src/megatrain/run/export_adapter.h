// Exports a PEFT directory from a run that trains adapters.
#pragma once

#include <optional>
#include <string>

#include "megatrain/run/export_run.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

// The run at RUN or RUN/checkpoints/step-N if it trains adapters.
std::optional<RunFiles> find_adapter_run(const std::string& path);

// `path` as in export_run(), of that run. The adapters are in fp32, as in RUN/model.
ExportedRun export_adapter_run(const RunFiles& run, const std::string& path, const std::string& out);

}  // namespace megatrain
