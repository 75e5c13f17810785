#include "megatrain/watch/watch_server.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "megatrain/io/json_text.h"
#include "megatrain/report/page_data.h"
#include "megatrain/report/report_page.h"
#include "megatrain/report/report_style.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr double kLookEvery = 0.5;         // seconds
constexpr size_t kWholeAgainAfter = 2000;  // steps: what a page holds is then brought together again

// None: there is no such run.
std::optional<size_t> selected_of(const std::string& query, size_t runs) {
  constexpr std::string_view kKey = "run=";
  size_t index = 0;
  if (!query.starts_with(kKey)) return 0;
  const char* end = query.data() + query.size();
  const auto [stop, error] = std::from_chars(query.data() + kKey.size(), end, index);
  if (error != std::errc() || stop != end || index >= runs) return std::nullopt;
  return index;
}

json alerts_json(const std::vector<std::string>& raised) {
  constexpr size_t kShown = 5;
  json alerts = json::array();
  for (size_t i = raised.size() - std::min(raised.size(), kShown); i < raised.size(); ++i) alerts.push_back(raised[i]);
  return alerts;
}

}  // namespace

WatchServer::WatchServer(Watcher& watcher, const HttpOptions& options)
    : watcher_(watcher), server_(options), told_(watcher.runs().size()) {
  server_.on("GET", "/", [this](const HttpRequest& request, const HttpReply& reply) { page(request, reply); });
  server_.on("GET", "/style.css", [](const HttpRequest&, const HttpReply& reply) {
    reply.send(200, "text/css; charset=utf-8", kReportStyle);
  });
  server_.on("GET", "/script.js", [](const HttpRequest&, const HttpReply& reply) {
    reply.send(200, "text/javascript; charset=utf-8", kReportScript);
  });
  server_.on("GET", "/events", [this](const HttpRequest&, const HttpReply& reply) { follow(reply); });
  server_.every(kLookEvery, [this] { look(); });
  look();
}

void WatchServer::page(const HttpRequest& request, const HttpReply& reply) const {
  std::vector<const ReportData*> runs;
  for (const auto& run : watcher_.runs()) runs.push_back(&run->follower.data());
  const std::optional<size_t> selected = selected_of(request.query, runs.size());
  if (!selected) {
    reply.send(404, "text/plain; charset=utf-8",
               fmt::format("there is no such run; ?run= takes 0 to {}\n", runs.size() - 1));
    return;
  }
  reply.send(200, "text/html; charset=utf-8", live_page(runs, *selected));
}

void WatchServer::follow(const HttpReply& reply) {
  reply.begin_events();
  for (size_t i = 0; i < told_.size(); ++i) reply.event(json_text(whole(i)), "run");
  followers_.push_back(reply);
}

void WatchServer::look() {
  watcher_.poll();
  std::erase_if(followers_, [](const HttpReply& reply) { return reply.gone(); });
  for (size_t i = 0; i < told_.size(); ++i) {
    const json event = news(i);
    if (event.is_null()) continue;
    const std::string text = json_text(event);
    for (const HttpReply& reply : followers_) reply.event(text, "run");
  }
}

json WatchServer::whole(size_t index) const {
  const WatchedRun& run = *watcher_.runs()[index];
  json event = run_json(run.follower.data());
  event["samples"] = samples_json(run.follower.data().history);
  event["alerts"] = alerts_json(run.raised);
  event["run"] = index;
  event["of"] = told_.size();
  event["whole"] = true;
  return event;
}

json WatchServer::news(size_t index) {
  const WatchedRun& run = *watcher_.runs()[index];
  const ReportData& data = run.follower.data();
  Told& told = told_[index];
  const size_t steps = data.history.steps.size();
  const bool again =
      run.follower.times_back() != told.back || steps < told.steps || told.since_whole > kWholeAgainAfter;
  json event = {{"run", index},
                {"of", told_.size()},
                {"state", data.state},
                {"why", data.why},
                {"complete", data.complete},
                {"progress", progress_of(data)},
                {"cards", cards_json(data)},
                {"memory", memory_json(data.memory)}};
  const std::string state = json_text(event);
  const int64_t lanes_step = data.lanes ? data.lanes->step : -1;
  const bool changed = again || state != told.state || steps != told.steps || lanes_step != told.lanes_step ||
                       data.history.evaluations.size() != told.evaluations ||
                       data.history.samples.size() != told.samples || run.raised.size() != told.alerts;
  if (!changed) return nullptr;
  if (again) {
    event = whole(index);
  } else {
    if (steps > told.steps) event["rows"] = rows_json(data.history.steps, steps, told.steps);
    if (data.history.evaluations.size() != told.evaluations) event["evaluations"] = evaluations_json(data.history);
    if (data.history.samples.size() != told.samples) event["samples"] = samples_json(data.history);
    if (run.raised.size() != told.alerts) event["alerts"] = alerts_json(run.raised);
    if (lanes_step != told.lanes_step && data.lanes) event["lanes"] = lanes_json(*data.lanes);
  }
  told = {.steps = steps,
          .evaluations = data.history.evaluations.size(),
          .samples = data.history.samples.size(),
          .alerts = run.raised.size(),
          .back = run.follower.times_back(),
          .lanes_step = lanes_step,
          .since_whole = again ? 0 : told.since_whole + steps - told.steps,
          .state = state};
  return event;
}

}  // namespace megatrain
