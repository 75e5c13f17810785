#include "megatrain/run/evaluations.h"

#include <cmath>

#include <fmt/format.h>

#include "megatrain/io/json.h"
#include "megatrain/io/line_file.h"
#include "megatrain/io/line_reader.h"
#include "megatrain/io/replace.h"

namespace megatrain {

Evaluations::Evaluations(std::string path, int64_t patience) : path_(std::move(path)), patience_(patience) {
  if (!can_read(path_)) return;
  for (LineReader line(path_); line.next();) {
    const nlohmann::json object = nlohmann::json::parse(line.line(), nullptr, false);
    if (object.is_object() && object.contains("step") && object["step"].is_number_integer() && object["step"] > 0 &&
        object.contains("loss") && object["loss"].is_number())
      losses_.emplace(object["step"].get<int64_t>(), object["loss"].get<double>());
  }
  for (const auto& [step, loss] : losses_) count({.step = step, .loss = loss});
}

void Evaluations::count(const Evaluation& evaluation) {
  last_loss_ = evaluation.loss;
  last_step_ = evaluation.step;
  rises_ = rising_.look(evaluation.step, evaluation.loss);
  const bool best = is_lowest(evaluation.loss);
  since_best_ = best ? 0 : since_best_ + 1;
  if (best) {
    best_loss_ = evaluation.loss;
    best_step_ = evaluation.step;
  }
}

std::optional<double> Evaluations::loss_of(int64_t step) const {
  const auto found = losses_.find(step);
  return found == losses_.end() ? std::nullopt : std::optional(found->second);
}

void Evaluations::add(const Evaluation& evaluation) {
  LineFile file(path_);
  // infinite for a loss of 710 or more, which JSON cannot represent
  const double perplexity = std::exp(evaluation.loss);
  file.append(fmt::format("{{\"step\":{},\"loss\":{:.17g},\"perplexity\":{},\"tokens\":{}}}", evaluation.step,
                          evaluation.loss, std::isfinite(perplexity) ? fmt::format("{:.17g}", perplexity) : "null",
                          evaluation.tokens));
  file.sync();  // `patience` reads it back after a resume
  losses_.emplace(evaluation.step, evaluation.loss);
  count(evaluation);
}

}  // namespace megatrain
