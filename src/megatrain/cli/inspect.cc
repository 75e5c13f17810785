#include "megatrain/cli/inspect.h"
#include "megatrain/cli/verbs.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/cli/inspect_data.h"
#include "megatrain/config/arguments.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

int verb_inspect(const Words& words) {
  if (!words.empty() && words[0] == "data") return inspect_data({words.begin() + 1, words.end()});
  const Arguments arguments(words, {}, {"--json", "--tensors"}, "inspect");
  const std::string& given = arguments.one("MODEL or RUN");
  if (!arguments.overrides().empty())
    fail_config(fmt::format("'megatrain inspect' takes no configuration keys, but {} was given",
                            arguments.overrides().front()));
  const InspectOptions options{.json = arguments.flag("--json"), .tensors = arguments.flag("--tensors")};
  const std::string path = find_model(given, ModelParts::config);
  if (is_run_directory(path)) return inspect_run(path, options);
  if (!std::filesystem::is_directory(path)) {
    fail_input(
        fmt::format("{} is {}; give a Hugging Face model directory, a name in the Hugging Face cache (Org/Name) "
                    "or a run directory",
                    path, std::filesystem::exists(path) ? "not a directory" : "not there"));
  }
  return inspect_model(path, options);
}

}  // namespace megatrain
