#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/cli/progress.h"
#include "megatrain/cli/stop_signal.h"
#include "megatrain/cli/words.h"
#include "megatrain/train/run.h"

namespace megatrain {

int verb_train(const Words& words) {
  const Arguments arguments(words, {}, {"--json"}, "train");
  const TrainConfig config = load_config(arguments.one("CONFIG.yaml"), arguments.overrides());
  RunHooks hooks;
  hooks.stop = watch_stop_signals();
  Progress progress;
  hooks.on_step = [&progress](const StepMetrics& metrics) { progress.show(metrics); };
  hooks.on_stall = [](const std::string& why) {
    fmt::print(stderr, "megatrain: {}\n", why);
    std::_Exit(static_cast<int>(ExitCode::stalled));
  };
  const RunResult result = run_training(config, hooks);
  end_log_status();
  if (arguments.flag("--json")) {
    const nlohmann::json json = {
        {"run_dir", result.run_dir},
        {"step", result.step},
        {"loss", result.last_loss},
        {"model", result.stopped_by ? nlohmann::json() : nlohmann::json(result.run_dir + "/model")},
        {"eval_loss", result.eval_loss ? nlohmann::json(*result.eval_loss) : nlohmann::json()},
        {"state", result.state_hash.empty() ? nlohmann::json() : nlohmann::json(result.state_hash)}};
    fmt::print("{}\n", json.dump());
  } else if (!result.stopped_by) {
    fmt::print("{}/model\n", result.run_dir);
  }
  return result.stopped_by ? 128 + result.stopped_by : 0;
}

}  // namespace megatrain
