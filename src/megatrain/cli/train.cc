#include <cstdlib>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/cli/config_argument.h"
#include "megatrain/cli/next_commands.h"
#include "megatrain/cli/progress.h"
#include "megatrain/cli/signal_watch.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/run/best_model.h"
#include "megatrain/run/run.h"

namespace megatrain {

int verb_train(const Arguments& arguments) {
  const TrainConfig config = load_config_argument(arguments);
  SignalWatch signals(/*saves=*/true);
  RunHooks hooks;
  hooks.stop = signals.stop();
  hooks.take_save_wish = [&signals] { return signals.take_save_wish(); };
  Progress progress;
  hooks.on_step = [&progress](const StepMetrics& metrics) { progress.show(metrics); };
  hooks.on_stall = [](const std::string& why) {
    say_error(why);
    std::_Exit(static_cast<int>(ExitCode::stalled));
  };
  const RunResult result = run_training(config, hooks);
  end_log_status();
  std::string text;
  if (arguments.json()) {
    const std::optional<BestModel> best_model = find_best_model(result.run_dir);
    const nlohmann::json json = {
        {"run_dir", result.run_dir},
        {"step", result.step},
        {"loss", result.last_loss ? nlohmann::json(*result.last_loss) : nlohmann::json()},
        {"model", result.stopped_by ? nlohmann::json() : nlohmann::json(result.run_dir + "/model")},
        {"eval_loss", result.eval_loss ? nlohmann::json(*result.eval_loss) : nlohmann::json()},
        {"best_model", best_model ? nlohmann::json(best_model->path) : nlohmann::json()},
        {"state", result.state_hash.empty() ? nlohmann::json() : nlohmann::json(result.state_hash)}};
    text = json_text(json) + "\n";
  } else if (!result.stopped_by) {
    text = result.run_dir + "/model\n";
  }
  if (!arguments.json()) log_next_commands(next_commands(result, config, arguments));
  const std::string failed = write_result(text);
  if (!failed.empty()) log_warn("the run is over, but its result could not be written to standard output: " + failed);
  if (result.stopped_by) return 128 + result.stopped_by;
  // Failing to print the path does not matter; failing to print the JSON that was asked for does.
  return static_cast<int>(failed.empty() || !arguments.json() ? ExitCode::ok : ExitCode::io);
}

}  // namespace megatrain
