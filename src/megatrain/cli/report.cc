// `megatrain report`: renders a run directory as one HTML page.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/unix_time.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/report/report_page.h"
#include "megatrain/watch/run_follower.h"

namespace megatrain {

using nlohmann::json;

int verb_report(const Arguments& arguments) {
  const std::string& run = arguments.one("RUN");
  const std::string out = arguments.option("--out").value_or(run + "/report.html");
  if (!out.ends_with(".html") && !out.ends_with(".htm"))
    fail_config(fmt::format("--out is '{}'; expected the name of a page, such as report.html", out));
  ReportData data = read_report(run);
  if (!data.complete) {
    RunFollower follower(run);
    follower.look(unix_s());
    if (follower.phase() != RunPhase::complete) follower.tell_state(data);
  }
  for (const std::string& damage : data.damaged) log_warn(fmt::format("{}: {}", run, damage));
  for (const std::string& warning : data.warnings) log_warn(fmt::format("{}: {}", run, warning));
  const std::string page = report_page(data);
  write_text_file(out, page);
  if (arguments.json()) {
    const RunHistory& h = data.history;
    const RunEvaluation* best = h.best_evaluation();
    fmt::print("{}\n", json_text(json{{"report", out},
                                      {"bytes", page.size()},
                                      {"complete", data.complete},
                                      {"state", data.state},
                                      {"steps", h.steps.size()},
                                      {"loss", h.steps.empty() ? json() : json(h.steps.back().loss)},
                                      {"best_evaluation_loss", best ? json(best->loss) : json()},
                                      {"tokens", h.tokens()},
                                      {"tokens_per_s", h.tokens_per_s()},
                                      {"seconds", h.seconds()},
                                      {"warnings", data.warnings},
                                      {"damaged", data.damaged}}));
  } else {
    fmt::print("{}\n", out);
  }
  return 0;
}

}  // namespace megatrain
