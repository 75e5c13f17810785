#include "megatrain/train/evaluations.h"

#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "megatrain/base/error.h"

namespace megatrain {

Evaluations::Evaluations(std::string path, int64_t patience) : path_(std::move(path)), patience_(patience) {
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_object() && object.contains("step") && object.contains("loss") && object["loss"].is_number())
      count({.step = object["step"], .loss = object["loss"]});
  }
}

void Evaluations::count(const Evaluation& evaluation) {
  last_loss_ = evaluation.loss;
  last_step_ = evaluation.step;
  const bool best = is_lowest(evaluation.loss);
  since_best_ = best ? 0 : since_best_ + 1;
  if (best) {
    best_loss_ = evaluation.loss;
    best_step_ = evaluation.step;
  }
}

void Evaluations::add(const Evaluation& evaluation) {
  std::ofstream file(path_, std::ios::app);
  file << fmt::format("{{\"step\":{},\"loss\":{:.17g},\"perplexity\":{:.17g},\"tokens\":{}}}\n", evaluation.step,
                      evaluation.loss, std::exp(evaluation.loss), evaluation.tokens)
       << std::flush;
  if (!file) fail_io(fmt::format("could not write {}; check the disk", path_));
  count(evaluation);
}

}  // namespace megatrain
