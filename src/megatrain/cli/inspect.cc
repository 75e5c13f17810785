#include "megatrain/cli/inspect.h"
#include "megatrain/cli/verbs.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/config/arguments.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

int verb_inspect(const Arguments& arguments) {
  const std::string& given = arguments.one("MODEL or RUN");
  const InspectOptions options{.json = arguments.json(), .tensors = arguments.flag("--tensors")};
  const std::string path = find_model_or_adapter(given, ModelParts::config);
  if (is_run_directory(path)) return inspect_run(path, options);
  if (!std::filesystem::is_directory(path)) {
    fail_input(
        fmt::format("{} is {}; give a Hugging Face or PEFT directory, a name in the Hugging Face cache (Org/Name) "
                    "or a run directory",
                    path, std::filesystem::exists(path) ? "not a directory" : "not there"));
  }
  if (is_adapter_directory(path)) return inspect_adapter(path, options);
  return inspect_model(path, options);
}

}  // namespace megatrain
