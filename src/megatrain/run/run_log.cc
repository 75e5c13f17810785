#include "megatrain/run/run_log.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "megatrain/base/log.h"
#include "megatrain/io/file.h"

namespace megatrain {

namespace {

constexpr int64_t kStepsToWarmUp = 2;
constexpr size_t kMostSpans = 20000;  // in lanes.json: about 3 MB

// Merges consecutive actions of a lane that do the same for one layer over several micro-batches.
std::vector<Span> joined(const std::vector<Span>& spans) {
  std::vector<Span> out;
  std::array<int64_t, kLanes> last;
  last.fill(-1);
  for (const Span& span : spans) {
    int64_t& at = last[static_cast<size_t>(span.action->lane)];
    if (at >= 0) {
      Span& before = out[static_cast<size_t>(at)];
      if (before.action->kind == span.action->kind && before.action->record == span.action->record) {
        before.end_s = std::max(before.end_s, span.end_s);
        continue;
      }
    }
    at = static_cast<int64_t>(out.size());
    out.push_back(span);
  }
  return out;
}

// Cuts the histories of a resumed run back to `step`.
void cut_back(const std::string& run_dir, int64_t step) {
  const std::string metrics = run_dir + "/metrics.jsonl";
  const int64_t last = keep_lines_up_to(metrics, step, {.numbers = {"loss", "eval_loss"}});
  keep_lines_up_to(run_dir + "/eval.jsonl", step, {.numbers = {"loss"}});
  keep_lines_up_to(run_dir + "/samples.jsonl", step, {.texts = {"prompt", "text"}, .several = true});
  if (last < step)
    log_warn(
        fmt::format("{} {}, but the run resumes after step {}: records of the steps between are missing. The "
                    "training itself is not affected",
                    metrics, last == 0 ? "has no step" : fmt::format("ends at step {}", last), step));
}

}  // namespace

RunLog::RunLog(const std::string& run_dir, int64_t step, int64_t steps, bool resumed)
    : run_dir_(run_dir),
      lanes_step_(std::min(step + kStepsToWarmUp + 1, steps)),
      events_(run_dir + "/tensorboard", step + 1) {
  if (resumed) cut_back(run_dir, step);
  metrics_.emplace(run_dir + "/metrics.jsonl");
}

void RunLog::step(const StepMetrics& m) {
  metrics_->append(metrics_json(m));
  const StepReport& r = m.report;
  events_.scalar("train/loss", m.step, r.loss);
  events_.scalar("train/grad_norm", m.step, r.grad_norm);
  events_.scalar("train/lr", m.step, m.lr);
  events_.scalar("train/tokens_per_s", m.step, static_cast<double>(r.tokens) / r.seconds);
  if (r.router) {
    if (r.router->aux_loss) events_.scalar("train/aux_loss", m.step, *r.router->aux_loss);
    if (r.router->z_loss) events_.scalar("train/z_loss", m.step, *r.router->z_loss);
    events_.scalar("train/imbalance", m.step, r.router->imbalance);
    events_.scalar("train/experts_used", m.step, r.router->used);
  }
  events_.flush();
}

void RunLog::add_scalar(std::string_view tag, int64_t step, double value) {
  events_.scalar(tag, step, value);
  events_.flush();
}

void RunLog::lanes(int64_t step, const std::vector<Span>& spans) {
  Trace trace;
  trace.add(step, spans.size() > kMostSpans ? joined(spans) : spans);
  write_text_file(run_dir_ + "/lanes.json", trace.json());
}

}  // namespace megatrain
