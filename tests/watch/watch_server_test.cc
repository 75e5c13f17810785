#include "megatrain/watch/watch_server.h"

#include <set>
#include <thread>

#include "megatrain/report/report_page.h"
#include "tests/support/http_client.h"
#include "tests/watch/made_run.h"

namespace megatrain {

namespace {

struct Serving {
  Watcher watcher;
  WatchServer server;
  std::thread thread;

  explicit Serving(const std::vector<std::string>& paths)
      : watcher(paths, {}, AlertCommand("", true)), server(watcher, {}), thread([this] { server.run(nullptr); }) {}
  ~Serving() {
    server.stop();
    thread.join();
  }
  int port() const { return server.http().port(); }
};

// Reads events from /events until `enough` returns true.
std::vector<nlohmann::json> events_until(HttpClient& client, const std::function<bool(const nlohmann::json&)>& enough) {
  std::vector<nlohmann::json> events;
  std::string text;
  for (std::string chunk; client.read_chunk(chunk);) {
    text += chunk;
    for (size_t end = text.find("\n\n"); end != std::string::npos; end = text.find("\n\n")) {
      const size_t at = text.find("data: ");
      if (at < end) events.push_back(nlohmann::json::parse(text.substr(at + 6, end - at - 6)));
      text.erase(0, end + 2);
      if (!events.empty() && enough(events.back())) return events;
    }
  }
  return events;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// The SVG of each chart on a page.
std::vector<std::string> charts_in(const std::string& page) {
  std::vector<std::string> found;
  for (size_t at = page.find("<svg class=\"chart\""); at != std::string::npos;) {
    const size_t end = page.find("</figure>", at);
    found.push_back(page.substr(at, end - at));
    at = page.find("<svg class=\"chart\"", end);
  }
  return found;
}

}  // namespace

TEST(WatchServer, ShowsTheDrawingsOfTheReport) {
  const MadeRun made;
  made.live(now());
  for (int64_t step = 1; step <= 40; ++step) made.step(step, 4.0 / static_cast<double>(step));
  made.append("eval.jsonl", "{\"step\":20,\"loss\":1.5}\n");
  const std::vector<std::string> report = charts_in(report_page(read_report(made.path())));
  ASSERT_EQ(report.size(), 18u) << "six of the loss, three of each other metric";
  const Serving serving({made.path()});
  const std::vector<std::string> page = charts_in(ask(serving.port(), "GET", "/").body);
  ASSERT_EQ(page.size(), 5u);
  EXPECT_EQ(page[0], report[0]);
  std::set<std::string> seen;
  for (const ChartChoice& choice : all_chart_choices()) {
    const std::string query =
        fmt::format("/figures?run=0&across={}&log={:d}", across_name(choice.across), choice.logarithmic_loss);
    const ClientReply figures = ask(serving.port(), "GET", query);
    EXPECT_EQ(figures.status, 200) << query;
    const std::vector<std::string> drawn = charts_in(figures.body);
    EXPECT_EQ(drawn.size(), 5u) << query;
    seen.insert(drawn.begin(), drawn.end());
    for (const char* part : {"id=\"charts\"", "id=\"lanes\"", "id=\"memory\"", "id=\"samples\""})
      EXPECT_NE(figures.body.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(seen, std::set<std::string>(report.begin(), report.end()));
}

TEST(WatchServer, RefusesAChoiceOfFiguresThatIsNone) {
  const MadeRun made;
  made.live(now());
  made.step(1, 4);
  const Serving serving({made.path()});
  EXPECT_EQ(ask(serving.port(), "GET", "/figures?run=1&across=step&log=0").status, 404);
  for (const char* query : {"/figures", "/figures?run=0", "/figures?run=0&across=epoch&log=0",
                            "/figures?run=0&across=step&log=2", "/figures?run=0&across=step&log=0&more=1"}) {
    const ClientReply refused = ask(serving.port(), "GET", query);
    EXPECT_EQ(refused.status, 400) << query;
    EXPECT_NE(refused.body.find("across=step|tokens|time"), std::string::npos) << refused.body;
  }
}

TEST(WatchServer, ComparesSeveralRunsInOneDrawing) {
  const MadeRun made, other;
  for (const MadeRun* run : {&made, &other}) {
    run->live(now());
    for (int64_t step = 1; step <= 30; ++step) run->step(step, 3.0 + 0.01 * static_cast<double>(step % 3));
  }
  const Serving serving({made.path(), other.path()});
  const std::string figures = ask(serving.port(), "GET", "/figures?run=1&across=tokens&log=1").body;
  EXPECT_NE(figures.find("<span class=\"key raw off\"><i class=\"raw run1\">"), std::string::npos);
  const std::string loss = charts_in(figures).at(0);
  for (const char* part :
       {"curve raw run0", "curve raw run1", "smooth some run1", "smooth more run0", "data-log=\"1\""})
    EXPECT_NE(loss.find(part), std::string::npos) << part;
}

TEST(WatchServer, HasFivePathsAndNoneOfTheFileSystem) {
  const MadeRun made;
  made.live(now());
  made.step(1, 4);
  const Serving serving({made.path()});
  const ClientReply page = ask(serving.port(), "GET", "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.head.find("text/html"), std::string::npos);
  EXPECT_NE(page.body.find("script.js"), std::string::npos);
  EXPECT_EQ(page.body.find(made.path()), std::string::npos) << "only the last part of the path is shown";
  EXPECT_EQ(ask(serving.port(), "GET", "/?run=0").status, 200);
  for (const char* query : {"/?run=1", "/?run=99999999999999999999", "/?run=-1", "/?run=abc", "/?run=0x"}) {
    const ClientReply refused = ask(serving.port(), "GET", query);
    EXPECT_EQ(refused.status, 404) << query;
    EXPECT_NE(refused.body.find("0 to 0"), std::string::npos) << refused.body;
  }
  EXPECT_NE(ask(serving.port(), "GET", "/script.js").body.find("EventSource"), std::string::npos);
  EXPECT_EQ(ask(serving.port(), "GET", "/style.css").status, 200);
  for (const char* path :
       {"/metrics.jsonl", "/../metrics.jsonl", "/live.json", "/etc/passwd", "//", "/%2e%2e/", "/script.js/"})
    EXPECT_EQ(ask(serving.port(), "GET", path).status, 404) << path;
  EXPECT_EQ(ask(serving.port(), "POST", "/", "x").status, 405);
  EXPECT_EQ(ask(serving.port(), "GET", "/", "", "Host: evil.example\r\n").status, 403);
}

TEST(WatchServer, OfARunThatHasNotBegunShowsNoShareOfIt) {
  const TemporaryDirectory directory;
  const Serving serving({directory / "later"});
  const std::string page = ask(serving.port(), "GET", "/").body;
  EXPECT_NE(page.find("no step yet"), std::string::npos);
  EXPECT_EQ(page.find("100%"), std::string::npos);
}

TEST(WatchServer, TellsWhatTheRunHasAndWhatComes) {
  const MadeRun made, other;
  made.live(now());
  other.live(now());
  for (int64_t step = 1; step <= 3; ++step) made.step(step, 4.0 / static_cast<double>(step));
  const Serving serving({made.path(), other.path()});
  HttpClient client(serving.port());
  client.send("GET", "/events");
  ClientReply reply;
  ASSERT_TRUE(client.read_head(reply));
  EXPECT_NE(reply.head.find("text/event-stream"), std::string::npos);
  const auto first = events_until(client, [](const nlohmann::json& event) { return event.at("run") == 1; });
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].at("of"), 2);
  EXPECT_EQ(first[0].at("steps"), 3);
  EXPECT_EQ(first[1].at("steps"), 0);
  made.step(4, 1);
  made.append("samples.jsonl", "{\"step\":4,\"prompt\":\"<b>\",\"text\":\"b\"}\n");
  const auto grown = events_until(
      client, [](const nlohmann::json& event) { return event.at("steps") == 4 && event.at("samples") == 1; });
  EXPECT_EQ(grown.back().at("run"), 0);
  const std::string figures = ask(serving.port(), "GET", "/figures?run=0&across=step&log=0").body;
  EXPECT_NE(figures.find("data-values=\"4 2 1.33333 1\""), std::string::npos) << figures;
  EXPECT_NE(figures.find("<pre>&lt;b&gt;</pre>"), std::string::npos) << "a sample is text";
  // a resumed run: steps that were taken back are no longer drawn
  made.append("resumed", step_line(1, 9).dump() + "\n");
  std::filesystem::rename(made.path() + "/resumed", made.path() + "/metrics.jsonl");
  events_until(client, [](const nlohmann::json& event) { return event.at("back") == 1 && event.at("steps") == 1; });
  EXPECT_NE(ask(serving.port(), "GET", "/figures?run=0&across=step&log=0").body.find("data-values=\"9\""),
            std::string::npos);
}

}  // namespace megatrain
