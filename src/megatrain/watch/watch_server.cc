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

constexpr double kLookEvery = 0.5;  // seconds

// A number that extends to the end of the text.
std::optional<size_t> number_of(std::string_view text) {
  size_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

// Empty if there is no such run.
std::optional<size_t> selected_of(std::string_view query, size_t runs) {
  constexpr std::string_view kKey = "run=";
  if (!query.starts_with(kKey)) return 0;
  const std::optional<size_t> index = number_of(query.substr(kKey.size(), query.find('&') - kKey.size()));
  return index && *index < runs ? index : std::nullopt;
}

// Reads what follows the run: "&across=tokens&log=1". Empty if it is not a valid choice.
std::optional<ChartChoice> choice_of(std::string_view query) {
  const size_t end = query.find('&');
  const std::string_view words = end == std::string_view::npos ? "" : query.substr(end + 1);
  for (const ChartChoice& choice : all_chart_choices()) {
    if (words == fmt::format("across={}&log={:d}", across_name(choice.across), choice.logarithmic_loss)) return choice;
  }
  return std::nullopt;
}

void refuse_run(const HttpReply& reply, size_t runs) {
  reply.send(404, "text/plain; charset=utf-8", fmt::format("no such run; ?run= takes 0 to {}\n", runs - 1));
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
  server_.on("GET", "/figures",
             [this](const HttpRequest& request, const HttpReply& reply) { figures(request, reply); });
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

namespace {

std::vector<const ReportData*> data_of(const Watcher& watcher) {
  std::vector<const ReportData*> runs;
  for (const auto& run : watcher.runs()) runs.push_back(&run->follower.data());
  return runs;
}

}  // namespace

void WatchServer::page(const HttpRequest& request, const HttpReply& reply) const {
  const std::vector<const ReportData*> runs = data_of(watcher_);
  const std::optional<size_t> selected = selected_of(request.query, runs.size());
  if (!selected) return refuse_run(reply, runs.size());
  reply.send(200, "text/html; charset=utf-8", live_page(runs, *selected));
}

void WatchServer::figures(const HttpRequest& request, const HttpReply& reply) const {
  const std::vector<const ReportData*> runs = data_of(watcher_);
  const std::optional<size_t> selected = selected_of(request.query, runs.size());
  if (!selected) return refuse_run(reply, runs.size());
  const std::optional<ChartChoice> choice = choice_of(request.query);
  if (!choice) {
    reply.send(400, "text/plain; charset=utf-8",
               "/figures takes ?run=NUMBER&across=step|tokens|time&log=0|1, in this order\n");
    return;
  }
  reply.send(200, "text/html; charset=utf-8", live_figures(runs, *selected, *choice));
}

void WatchServer::follow(const HttpReply& reply) {
  reply.begin_events();
  for (const std::string& event : told_) reply.event(event, "run");
  followers_.push_back(reply);
}

void WatchServer::look() {
  watcher_.poll();
  std::erase_if(followers_, [](const HttpReply& reply) { return reply.gone(); });
  for (size_t i = 0; i < told_.size(); ++i) {
    std::string event = event_of(i);
    if (event == told_[i]) continue;
    for (const HttpReply& reply : followers_) reply.event(event, "run");
    told_[i] = std::move(event);
  }
}

std::string WatchServer::event_of(size_t index) const {
  const WatchedRun& run = *watcher_.runs()[index];
  const ReportData& data = run.follower.data();
  json used = json::array();
  for (const TierMemory& tier : data.memory) used.push_back(tier.used);
  const json event = {{"run", index},
                      {"of", told_.size()},
                      {"name", data.name()},
                      {"state", data.state},
                      {"why", data.why},
                      {"complete", data.complete},
                      {"progress", progress_of(data)},
                      {"cards", cards_json(data)},
                      {"alerts", alerts_json(run.raised)},
                      {"steps", data.history.steps.size()},
                      {"evaluations", data.history.evaluations.size()},
                      {"samples", data.history.samples.size()},
                      {"back", run.follower.times_back()},
                      {"lanes_step", data.lanes ? data.lanes->step : -1},
                      {"used", used}};
  return json_text(event);
}

}  // namespace megatrain
