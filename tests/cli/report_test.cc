#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

int64_t count(const std::string& text, const std::string& part) {
  int64_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Every element is closed, in order; style and script are skipped.
void expect_balanced(const std::string& page) {
  const std::set<std::string> empty = {"meta", "!doctype"};
  std::vector<std::string> open;
  for (size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    const size_t end = page.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = page.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" \n"));
    if (name.starts_with('/')) {
      ASSERT_FALSE(open.empty()) << tag;
      ASSERT_EQ(open.back(), name.substr(1)) << page.substr(at, 200);
      open.pop_back();
    } else if (!empty.count(name) && !tag.ends_with('/')) {
      open.push_back(name);
      if (name == "style" || name == "script") at = page.find("</" + name, at) - 1;
    }
  }
  EXPECT_TRUE(open.empty());
}

// What must hold for any page: complete, self-contained, and without NaN or infinity.
void expect_sound(const std::string& page) {
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  expect_balanced(page);
  for (const char* bad : {"src=", "href=", "@import", "url(", "\"nan", "\"inf", "nan,", ",nan", ">-nan", "\"-nan",
                          ",-nan", " -nan", "innerHTML"})
    EXPECT_EQ(page.find(bad), std::string::npos) << bad;
  EXPECT_EQ(count(page, "http"), 0);
}

std::string page_of(const std::string& run) {
  EXPECT_EQ(succeed({"report", run}).out, run + "/report.html\n");
  const std::string page = read_bytes(run + "/report.html");
  expect_sound(page);
  return page;
}

std::string metrics_line_of(int64_t step, double loss) {
  return json{{"step", step},          {"loss", loss},        {"grad_norm", 1.0},       {"lr", 1e-4},
              {"seconds", 0.5},        {"tokens", 1024},      {"trained_tokens", 1000}, {"tokens_per_s", 2048.0},
              {"bound_by", "compute"}, {"hbm_peak", 1 << 20}, {"host_peak", 1 << 21}}
             .dump() +
         "\n";
}

// Points of the curve of this name.
std::vector<std::pair<double, double>> points_of(const std::string& page, const std::string& name) {
  const size_t at = page.find("points=\"", page.find("data-name=\"" + name + "\"")) + 8;
  std::istringstream text(page.substr(at, page.find('"', at) - at));
  std::vector<std::pair<double, double>> points;
  double x = 0, y = 0;
  for (char comma = 0; text >> x >> comma >> y;) points.emplace_back(x, y);
  return points;
}

// The data that the page holds for other programs.
json data_of(const std::string& page) {
  const size_t at = page.find('>', page.find("id=\"data\"")) + 1;
  return json::parse(page.substr(at, page.find("</script>", at) - at));
}

}  // namespace

TEST(Report, ShowsARealRunWhole) {
  const Place place("llama_linear", "steps: 5\nmicro_batch: 3\n");
  succeed({"train", place.config()});
  write_bytes(place.run() + "/eval.jsonl", "{\"step\":5,\"loss\":1.25,\"perplexity\":3.49,\"tokens\":10}\n");
  const std::string page = page_of(place.run());
  for (const char* part :
       {"LlamaForCausalLM", "complete", "step 5 of 5", "Loss, last 4 steps", "Evaluation loss, lowest", "1.2500",
        "Learning rate", "Gradient norm", "tokens/s", "Lanes of step 3", "block backward of layer", "Memory by tier",
        "second moments", "measured peak", "micro_batch: 3"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(points_of(page, "training").size(), 5u);
  const json shown = data_of(page).at("runs").at(0);
  const std::vector<json> metrics = metrics_of(place.run());
  ASSERT_EQ(shown.at("rows").at("step").size(), metrics.size());
  int64_t tokens = 0;
  for (size_t i = 0; i < metrics.size(); ++i) {
    tokens += metrics[i].at("tokens").get<int64_t>();
    EXPECT_EQ(shown.at("rows").at("step")[i], metrics[i].at("step"));
    EXPECT_EQ(shown.at("rows").at("tokens")[i], tokens);
    for (const char* name : {"loss", "grad_norm", "lr", "seconds", "tokens_per_s"}) {
      const double value = metrics[i].at(name).get<double>();
      EXPECT_NEAR(shown.at("rows").at(name)[i].get<double>(), value, 1e-6 * std::abs(value)) << name;
    }
  }
  const json lanes = json::parse(read_bytes(place.run() + "/lanes.json"));
  EXPECT_GT(lanes.at("traceEvents").size(), 10u);
  const std::string events = lanes.dump();
  EXPECT_EQ(count(page, "class=\"lane\""), 5 + (count(events, "collect gradient") > 0));
}

TEST(Report, TellsTheLayersOfAModelWithExpertsAndNotItsRecords) {
  const Place place("mixtral", "steps: 3\n");  // two layers, each with a record for attention and records for experts
  succeed({"train", place.config()});
  int64_t highest = 0;
  std::set<std::string> names;
  const json lanes = json::parse(read_bytes(place.run() + "/lanes.json"));
  for (const json& event : lanes.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    highest = std::max(highest, event.at("args").at("layer").get<int64_t>());
    names.insert(event.at("name"));
  }
  EXPECT_EQ(highest, 3);  // the head
  const std::string page = page_of(place.run());
  EXPECT_TRUE(names.contains("block backward 2"));
  // Records are updated by the host, or by the device if its memory allows. How experts are grouped depends on the
  // machine's speeds.
  const auto updated = [&](const std::string& place) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.starts_with("update " + place) || name.starts_with("update on device " + place);
    });
  };
  EXPECT_TRUE(names.contains("update 2") || names.contains("update on device 2")) << json(names);
  EXPECT_TRUE(updated("2, expert")) << json(names);
  for (const char* part : {"of layer 4", "of layer 5"}) EXPECT_EQ(page.find(part), std::string::npos) << part;
}

TEST(Report, EscapesEverythingARunCanHold) {
  const Place place("llama_linear", "steps: 1\n");
  succeed({"train", place.config(), "--run_dir=" + (place / "a<b>&\"c'")});
  const std::string run = place / "a<b>&\"c'";
  const json sample = {{"step", 1}, {"prompt", "<script>alert(1)</script>"}, {"text", "a & b\x01 \"q\" </pre><img x>"}};
  write_bytes(run + "/samples.jsonl", sample.dump() + "\n");
  const std::string page = page_of(run);
  EXPECT_NE(page.find("&lt;script&gt;alert(1)&lt;/script&gt;"), std::string::npos);
  EXPECT_NE(page.find("a &amp; b\xef\xbf\xbd &quot;q&quot; &lt;/pre&gt;&lt;img x&gt;"), std::string::npos);
  EXPECT_NE(page.find("<title>a&lt;b&gt;&amp;&quot;c&#39;"), std::string::npos);
}

TEST(Report, ThousandsOfStepsStaySmallAndKeepTheirExtremes) {
  const Place place("llama_linear", "steps: 1\n");
  succeed({"train", place.config()});
  std::string lines;
  for (int64_t step = 1; step <= 20000; ++step)
    lines += metrics_line_of(step, step == 7777 ? 9.0 : step == 12345 ? 0.5 : 2.0);
  write_bytes(place.run() + "/metrics.jsonl", lines);
  const std::string page = page_of(place.run());
  EXPECT_LT(page.size(), 400'000u);
  const auto points = points_of(page, "training");
  EXPECT_LE(points.size(), 1000u);
  double low = 1e9, high = -1e9;
  for (const auto& [x, y] : points) low = std::min(low, y), high = std::max(high, y);
  // the curve fills its chart except for the margins above and below, so both spikes are there
  EXPECT_NEAR((high - low) / (286 - 10), 1 / 1.1, 0.01);
  const json rows = data_of(page).at("runs").at(0).at("rows");
  EXPECT_EQ(rows.at("step").size(), 1000u);
  EXPECT_EQ(rows.at("step").back(), 20000);
  EXPECT_EQ(rows.at("tokens").back(), 20000 * 1024);
  EXPECT_EQ(*std::max_element(rows.at("loss_high").begin(), rows.at("loss_high").end()), 9.0);
  EXPECT_EQ(*std::min_element(rows.at("loss_low").begin(), rows.at("loss_low").end()), 0.5);
}

TEST(Report, TellsWhatDiffersFromTheDefaultsAndHasATableOfSamplesByStep) {
  const Place place("llama_linear", "steps: 2\n");
  succeed({"train", place.config()});
  std::string lines;
  for (const int64_t step : {1, 2}) {
    for (const char* prompt : {"one?", "two?"})
      lines += json{{"step", step}, {"prompt", prompt}, {"text", fmt::format("{} at {}", prompt, step)}}.dump() + "\n";
  }
  write_bytes(place.run() + "/samples.jsonl", lines);
  const std::string page = page_of(place.run());
  EXPECT_NE(page.find("<tr><th>optim.lr</th><td>0.003</td><td>1e-05</td></tr>"), std::string::npos);
  EXPECT_EQ(page.find("<th>memory.state</th>"), std::string::npos) << "it has its default";
  EXPECT_NE(
      page.find("<tr><th>2</th><td data-prompt=\"one?\"><pre>one? at 2</pre></td><td data-prompt=\"two?\"><pre>two? "
                "at 2</pre></td></tr>\n<tr><th>1</th>"),
      std::string::npos);
}

TEST(Report, OfARunThatDidNotReachItsEndSaysHowItEndedAndNoTimeToGo) {
  const Place place("llama_linear", "steps: 3\n");
  succeed({"train", place.config()});
  fs::remove(place.run() + "/hash.json");
  const std::string lines = read_bytes(place.run() + "/metrics.jsonl");
  write_bytes(place.run() + "/metrics.jsonl", lines.substr(0, lines.find('\n') + 1));
  json live = json::parse(read_bytes(place.run() + "/live.json"));
  const auto page_when = [&](const json& changes) {
    live.update(changes);
    write_bytes(place.run() + "/live.json", live.dump());
    return page_of(place.run());
  };
  const std::string failed = page_when({{"state", "failed"}, {"exit_code", 6}, {"message", "step 2: loss is <nan>"}});
  const std::string stopped = page_when({{"state", "stopped"}, {"exit_code", 143}, {"message", ""}});
  const std::string killed = page_when({{"state", "running"}, {"pid", 1 << 30}, {"written", 1}});
  for (const auto& [page, state, why] : {std::tuple{failed, "failed", "exit code 6: step 2: loss is &lt;nan&gt;"},
                                         {stopped, "stopped", "exit code 143<"},
                                         {killed, "killed", "exit code 137: the run&#39;s process is gone"}}) {
    EXPECT_NE(page.find(fmt::format("<span class=\"state ended\">{}</span>", state)), std::string::npos) << state;
    EXPECT_NE(page.find(fmt::format("<span>{} at step 1; ", state)), std::string::npos) << state;
    EXPECT_NE(page.find(why), std::string::npos) << state << page.substr(page.find("<header"), 800);
    EXPECT_EQ(page.find(" to go at"), std::string::npos) << state;
  }
}

TEST(Report, WorksOnARunThatHasHardlyBegun) {
  const Place place("llama_linear", "steps: 4\n");
  succeed({"train", place.config()});
  for (const char* name : {"hash.json", "lanes.json", "memory.json", "identity.json"})
    fs::remove(place.run() + "/" + name);
  const std::string first = read_bytes(place.run() + "/metrics.jsonl");
  write_bytes(place.run() + "/metrics.jsonl", first.substr(0, first.find('\n') + 40));  // half of step 2
  std::string page = page_of(place.run());
  EXPECT_NE(page.find("step 1 of 4"), std::string::npos);
  EXPECT_NE(page.find("not complete"), std::string::npos);
  EXPECT_NE(page.find("to go"), std::string::npos);
  fs::remove(place.run() + "/metrics.jsonl");
  page = page_of(place.run());
  EXPECT_NE(page.find("has not finished a step yet"), std::string::npos);
  fs::remove(place.run() + "/model_config.json");
  page_of(place.run());
}

TEST(Report, ReadsEvaluationsOfTheMetricsFileToo) {
  const Place place("llama_linear", "steps: 2\n");
  succeed({"train", place.config()});
  write_bytes(place.run() + "/metrics.jsonl",
              read_bytes(place.run() + "/metrics.jsonl") + "{\"step\":2,\"eval_loss\":0.125}\n");
  const json told = json::parse(succeed({"report", place.run(), "--out", place / "page.html", "--json"}).out);
  EXPECT_EQ(told.at("best_evaluation_loss"), 0.125);
  EXPECT_EQ(told.at("steps"), 2);
  EXPECT_EQ(told.at("report"), place / "page.html");
  EXPECT_EQ(read_bytes(place / "page.html").size(), told.at("bytes"));
}

TEST(Report, RefusesWithASentence) {
  const Place place("llama_linear", "steps: 1\n");
  expect_refusal({"report", place / "nothing"}, ExitCode::bad_input, {"not a run", "does not exist"});
  expect_refusal({"report", golden("llama_linear") + "/model"}, ExitCode::bad_input, {"config.resolved.yaml"});
  succeed({"train", place.config()});
  expect_refusal({"report", place.run(), "--out", place.config()}, ExitCode::bad_config, {"--out", ".html"});
  expect_refusal({"report", place.run(), "--steps=3"}, ExitCode::bad_config, {"--steps=3"});
}

TEST(Report, WarnsOfWhatIsDamagedAndDrawsTheRest) {
  const Place place("llama_linear", "steps: 1\n");
  succeed({"train", place.config()});
  std::ofstream(place.run() + "/metrics.jsonl", std::ios::app) << "{\"step\": 2,\n" << metrics_line_of(3, 2.5);
  const Outcome outcome = succeed({"report", place.run(), "--json"});
  EXPECT_NE(outcome.err.find("metrics.jsonl:2 is not a JSON object"), std::string::npos) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result.at("steps"), 2);
  EXPECT_EQ(result.at("damaged").size(), 1u);
  EXPECT_NE(page_of(place.run()).find("metrics.jsonl:2"), std::string::npos);
  EXPECT_NE(succeed({"inspect", place.run()}).err.find("metrics.jsonl:2"), std::string::npos);
}

}  // namespace megatrain::cli
