#include <cstdlib>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/cli/next_commands.h"
#include "megatrain/cli/progress.h"
#include "megatrain/cli/signal_watch.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/config/run_config.h"
#include "megatrain/io/json_text.h"
#include "megatrain/run/result_json.h"
#include "megatrain/run/run.h"

namespace megatrain {

int verb_train(const Arguments& arguments) {
  const TrainConfig config = load_run_config(arguments.one("CONFIG.yaml"), arguments.overrides());
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
    text = json_text(to_json(result)) + "\n";
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
