#include "megatrain/report/report_page.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/io/json_text.h"
#include "megatrain/report/charts.h"
#include "megatrain/report/html.h"
#include "megatrain/report/page_data.h"
#include "megatrain/report/report_style.h"

namespace megatrain {

namespace {

std::string header(const ReportData& d) {
  return fmt::format(
      "<header><h1>{}</h1><p>{}</p><p><span class=\"state {}\">{}</span> <span "
      "id=\"progress\">{}</span></p><p id=\"why\">{}</p></header>\n",
      escape_html(d.name()), escape_html(about(d)),
      d.complete      ? "complete"
      : d.why.empty() ? "going"
                      : "ended",
      escape_html(d.state), progress_of(d), escape_html(d.why));
}

std::string cards(const ReportData& d) {
  std::string text = "<section class=\"cards\">\n";
  for (const Card& card : cards_of(d))
    text += fmt::format("<div class=\"card\"><h2>{}</h2><b>{}</b><span>{}</span></div>\n", escape_html(card.title),
                        escape_html(card.value), escape_html(card.note));
  return text + "</section>\n";
}

std::string memory(const ReportData& d) {
  int64_t largest = 0;
  for (const TierMemory& tier : d.memory) largest = std::max({largest, tier.planned_bytes(), tier.peak, tier.used});
  if (largest == 0) return "<section id=\"memory\"></section>\n";
  std::string text = "<section id=\"memory\"><h2>Memory by tier</h2>\n";
  if (d.aliased)
    text += "<p>The device is the CPU: its memory is host memory too, so the host's peak includes both.</p>\n";
  for (const TierMemory& tier : d.memory) text += memory_figure(tier, largest);
  return text + "</section>\n";
}

std::string lanes(const ReportData& d) {
  std::string figure = d.lanes ? svg_lanes(*d.lanes) : "";
  if (figure.empty()) figure = "<figure class=\"lanes\"><p class=\"none\">nothing yet</p></figure>\n";
  return "<div id=\"lanes\">" + figure + "</div>\n";
}

// One row per step, newest first; one column per prompt.
std::string samples(const ReportData& d) {
  constexpr size_t kSteps = 40;
  std::vector<std::string> prompts;
  std::vector<int64_t> steps;
  for (const RunSample& sample : d.history.samples) {
    if (std::find(prompts.begin(), prompts.end(), sample.prompt) == prompts.end()) prompts.push_back(sample.prompt);
    steps.push_back(sample.step);
  }
  std::sort(steps.rbegin(), steps.rend());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  if (steps.empty()) return "<section id=\"samples\"></section>\n";
  std::string text = "<section id=\"samples\"><h2>Samples</h2>\n";
  if (steps.size() > kSteps) {
    text += fmt::format("<p>The newest {} of {} steps; samples.jsonl has all.</p>\n", kSteps, steps.size());
    steps.resize(kSteps);
  }
  text += "<div class=\"wide\"><table class=\"samples\"><thead><tr><th>step</th>";
  for (const std::string& prompt : prompts) text += fmt::format("<th><pre>{}</pre></th>", escape_html(prompt));
  text += "</tr></thead><tbody>\n";
  for (const int64_t step : steps) {
    text += fmt::format("<tr><th>{}</th>", step);
    for (const std::string& prompt : prompts) {
      const auto found =
          std::find_if(d.history.samples.rbegin(), d.history.samples.rend(),
                       [&](const RunSample& sample) { return sample.step == step && sample.prompt == prompt; });
      text += fmt::format("<td data-prompt=\"{}\"><pre>{}</pre></td>", escape_html(prompt),
                          found == d.history.samples.rend() ? "" : escape_html(found->text));
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table></div></section>\n";
}

std::string configuration(const ReportData& d) {
  if (d.configuration.empty()) return "";
  std::string text = "<h2>Configuration</h2>\n";
  if (d.differences.empty()) {
    text += "<p>Every key has its default.</p>\n";
  } else {
    text +=
        "<div class=\"wide\"><table class=\"config\"><thead><tr><th>key</th><th>this run</th><th>default</th></tr>"
        "</thead><tbody>\n";
    for (const ConfigDifference& key : d.differences)
      text += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td></tr>\n", escape_html(key.key), escape_html(key.value),
                          escape_html(key.by_default));
    text += "</tbody></table></div>\n";
  }
  return text + fmt::format("<details><summary>every key</summary><pre class=\"config\">{}</pre></details>\n",
                            escape_html(d.configuration));
}

std::string head(const std::string& title, const std::string& style) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" "
      "content=\"light dark\">\n<title>{} · megatrain</title>\n{}</head>\n",
      escape_html(title), style);
}

// Text inside a <script> element: nothing in it may end the element.
std::string inside_script(std::string text) {
  for (size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at)) text.replace(at, 1, "\\u003c");
  return text;
}

std::string alerts(const ReportData& d) {
  std::string text;
  for (const std::string& what : d.warnings) text += fmt::format("<p class=\"alert\">{}</p>\n", escape_html(what));
  for (const std::string& what : d.damaged) text += fmt::format("<p class=\"alert\">{}</p>\n", escape_html(what));
  return text;
}

std::string body(const ReportData& d, const std::string& drawn) {
  std::string text = header(d) + "<section id=\"alerts\"></section>\n" + alerts(d) + cards(d);
  if (d.history.steps.empty()) text += "<p class=\"none\">The run has not finished a step yet.</p>\n";
  text += "<h2>Training</h2>\n<div id=\"controls\"></div>\n" + drawn;
  return text + "<h2>Where a step's time goes</h2>\n" + lanes(d) + memory(d) + samples(d) + configuration(d);
}

}  // namespace

std::string report_page(const ReportData& d) {
  const nlohmann::json data = {{"runs", {run_json(d)}}};
  return head(d.name(), fmt::format("<style>{}</style>", kReportStyle)) + "<body><main>\n" +
         body(d, charts({&d}, all_chart_choices())) +
         fmt::format(
             "</main><div id=\"tip\" hidden></div>\n<script type=\"application/json\" id=\"data\">{}</script>\n"
             "<script>{}</script></body></html>\n",
             inside_script(json_text(data)), kReportScript);
}

std::string live_page(const std::vector<const ReportData*>& runs, size_t selected) {
  const ReportData& shown = *runs.at(selected);
  std::string choose;
  if (runs.size() > 1) {
    choose = "<nav class=\"runs\">";
    for (size_t i = 0; i < runs.size(); ++i)
      choose += fmt::format("<a class=\"run{}{}\" href=\"?run={}\"><i></i>{} <small></small></a>", i % 6,
                            i == selected ? " selected" : "", i, escape_html(runs[i]->name()));
    choose += "</nav>\n";
  }
  return head(shown.name(),
              "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'self'; "
              "style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:\">\n<link rel=\"icon\" "
              "href=\"data:,\">"
              "<link rel=\"stylesheet\" href=\"style.css\">") +
         fmt::format("<body data-live=\"{}\"><main>\n", selected) + choose + body(shown, charts(runs, {{}})) +
         "</main><div id=\"tip\" hidden></div>\n<script src=\"script.js\"></script></body></html>\n";
}

std::string live_figures(const std::vector<const ReportData*>& runs, size_t selected, const ChartChoice& choice) {
  const ReportData& shown = *runs.at(selected);
  return charts(runs, {choice}) + lanes(shown) + memory(shown) + samples(shown);
}

}  // namespace megatrain
