#include "megatrain/watch/watch_server.h"

#include <thread>

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

// Events of /events until `enough` of them.
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

}  // namespace

TEST(WatchServer, HasFourPathsAndNoneOfTheFileSystem) {
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
  EXPECT_TRUE(first[0].at("whole"));
  EXPECT_EQ(first[0].at("of"), 2);
  EXPECT_EQ(first[0].at("rows").at("loss"), nlohmann::json({4.0, 2.0, 1.333333}));
  EXPECT_EQ(first[0].at("rows").at("tokens"), nlohmann::json({1024, 2048, 3072}));
  made.step(4, 1);
  made.append("samples.jsonl", "{\"step\":4,\"prompt\":\"<b>\",\"text\":\"b\"}\n");
  const auto grown = events_until(client, [](const nlohmann::json& event) { return event.contains("rows"); });
  EXPECT_EQ(grown.back().at("rows").at("step"), nlohmann::json({4}));
  EXPECT_EQ(grown.back().at("rows").at("tokens"), nlohmann::json({4096}));
  EXPECT_FALSE(grown.back().contains("whole"));
  // a resumed run: the page is told all again
  made.append("resumed", step_line(1, 9).dump() + "\n");
  std::filesystem::rename(made.path() + "/resumed", made.path() + "/metrics.jsonl");
  const auto again = events_until(client, [](const nlohmann::json& event) { return event.contains("whole"); });
  EXPECT_EQ(again.back().at("rows").at("loss"), nlohmann::json({9.0}));
}

}  // namespace megatrain
