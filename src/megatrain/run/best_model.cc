#include "megatrain/run/best_model.h"

#include <filesystem>

#include "megatrain/run/evaluations.h"
#include "megatrain/run/run_files.h"

namespace megatrain {

std::optional<BestModel> find_best_model(const std::string& run_dir) {
  const std::string path = run_dir + "/best";
  std::error_code none;
  if (!is_run_directory(run_dir) || !std::filesystem::exists(path + "/config.json", none)) return std::nullopt;
  const RunFiles run = read_run(run_dir);
  if (!run.config.eval.keep_best) return std::nullopt;
  const Evaluations evaluations(run_dir + "/eval.jsonl", 0);
  if (evaluations.best_step() < 0 || evaluations.best_step() == run.complete_step) return std::nullopt;
  return BestModel{.path = path, .step = evaluations.best_step(), .loss = evaluations.best_loss()};
}

}  // namespace megatrain
