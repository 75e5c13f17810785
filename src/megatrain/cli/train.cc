#include <csignal>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "megatrain/base/log.h"
#include "megatrain/cli/progress.h"
#include "megatrain/cli/words.h"
#include "megatrain/train/run.h"

namespace megatrain {

namespace {

volatile std::sig_atomic_t stop_signal = 0;

// The first signal asks for a save and a stop; the handler is then gone, so a second one ends the process.
void on_signal(int signal) { stop_signal = signal; }

void install_handlers() {
  stop_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESETHAND;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace

int verb_train(const Words& words) {
  const Arguments arguments(words, {}, {"--json"}, "train");
  const TrainConfig config = load_config(arguments.one("CONFIG.yaml"), arguments.overrides());
  install_handlers();
  RunHooks hooks;
  hooks.stop = &stop_signal;
  Progress progress;
  hooks.on_step = [&progress](const StepMetrics& metrics) { progress.show(metrics); };
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
