#include "megatrain/run/result_json.h"

namespace megatrain {

nlohmann::json to_json(const RunResult& result) {
  return {{"run_dir", result.run_dir},
          {"step", result.step},
          {"loss", result.last_loss ? nlohmann::json(*result.last_loss) : nlohmann::json()},
          {"model", result.stopped_by ? nlohmann::json() : nlohmann::json(result.run_dir + "/model")},
          {"eval_loss", result.eval_loss ? nlohmann::json(*result.eval_loss) : nlohmann::json()},
          {"state", result.state_hash.empty() ? nlohmann::json() : nlohmann::json(result.state_hash)}};
}

}  // namespace megatrain
