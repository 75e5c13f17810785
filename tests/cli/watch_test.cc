#include <sys/stat.h>

#include "tests/support/http_client.h"
#include "tests/support/on_terminal.h"
#include "tests/support/places.h"

namespace megatrain::cli {

namespace {

std::vector<json> events_of(const std::vector<json>& lines, const std::string& name) {
  std::vector<json> found;
  for (const json& line : lines) {
    if (line.at("event") == name) found.push_back(line);
  }
  return found;
}

// A script for sh that redirects standard output to a file which the test reads meanwhile.
std::string into(const std::string& file) { return "exec \"$0\" \"$@\" > '" + file + "'"; }

}  // namespace

TEST(Watch, DrawsOnATerminalAndLeavesItAsItWas) {
  const std::string leaves = "\x1b[?25h\x1b[?1049l";  // shows the cursor and restores the previous screen
  const Place place("llama_linear", "steps: 3\n");
  succeed({"train", place.config()});
  OnTerminal quits({"watch", place.run()});
  quits.until("step 3 of 3");
  EXPECT_TRUE(quits.is_raw());
  quits.type("l");
  quits.until("loss (log) over steps");
  quits.type("x");
  quits.until("over tokens");
  quits.type("m");
  quits.until("gradient norm");
  quits.type("q");
  quits.until(leaves);
  EXPECT_EQ(quits.wait(), 0);
  EXPECT_TRUE(quits.is_as_before());
  OnTerminal stopped({"watch", place / "later"});
  stopped.until("waiting for the run");
  stopped.signal(SIGTERM);
  stopped.until(leaves);
  EXPECT_EQ(stopped.wait(), 143);
  EXPECT_TRUE(stopped.is_as_before());
}

TEST(Watch, ASignalEndsAWatchThatNobodyReads) {
  const Place place("llama_linear", "steps: 3\n");
  succeed({"train", place.config()});
  const std::string lines = read_bytes(place.run() + "/metrics.jsonl"), pipe = place / "pipe";
  std::ofstream metrics(place.run() + "/metrics.jsonl");
  for (int i = 0; i < 200; ++i) metrics << lines;  // more than a pipe's buffer
  metrics.close();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  Process watch({"watch", place.run(), "--json", "--follow"}, "", into(pipe));
  pollfd has_room{.fd = reader, .events = POLLOUT};
  ASSERT_TRUE(eventually([&] { return ::poll(&has_room, 1, 0) == 0; }));
  watch.signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return watch.ended(); }));
  const Outcome outcome = watch.wait();
  EXPECT_EQ(outcome.code, 143) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  ::close(reader);
}

TEST(Watch, FollowsARunFromBeforeItsStartToItsEnd) {
  const Place place("llama_linear", "steps: 6\n");
  Process watch({"watch", place.run(), "--json", "--follow"});
  ASSERT_TRUE(eventually([&] { return watch.said().find("waiting") != std::string::npos; }));
  succeed({"train", place.config()});
  const Outcome outcome = watch.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<json> lines = json_lines(outcome.out), steps = events_of(lines, "step"),
                          metrics = metrics_of(place.run());
  ASSERT_EQ(steps.size(), 6u);
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const auto& [key, value] : metrics[i].items()) EXPECT_EQ(steps[i].at(key), value) << key;
    EXPECT_EQ(steps[i].at("run"), place.run());
  }
  EXPECT_EQ(lines.back().at("event"), "state");
  EXPECT_EQ(lines.back().at("state"), "complete");
  EXPECT_EQ(lines.back().at("exit_code"), 0);
  const json live = json::parse(read_bytes(place.run() + "/live.json"));
  EXPECT_EQ(live.at("state"), "complete");
  EXPECT_GE(live.at("lanes").at("step"), 1);  // the first step if all six are faster than one write
  EXPECT_LE(live.at("lanes").at("step"), 6);
  const json now = json::parse(succeed({"watch", place.run(), "--json"}).out);
  EXPECT_EQ(now.at("state"), "complete");
  EXPECT_EQ(now.at("step"), 6);
  EXPECT_EQ(now.at("loss"), metrics.back().at("loss"));
}

TEST(Watch, EndsAsTheRunDid) {
  const Place place("llama_linear", "steps: 100000\n");
  Process train({"train", place.config()});
  const std::string metrics = place.run() + "/metrics.jsonl";
  ASSERT_TRUE(eventually([&] { return fs::exists(metrics) && fs::file_size(metrics) > 0; }));
  EXPECT_EQ(json::parse(succeed({"watch", place.run(), "--json"}).out).at("state"), "running");
  Process watch({"watch", place.run(), "--json", "--follow"});
  train.signal(SIGTERM);
  EXPECT_EQ(train.wait().code, 143);
  const Outcome stopped = watch.wait();
  EXPECT_EQ(stopped.code, 143) << stopped.err;
  EXPECT_EQ(json_lines(stopped.out).back().at("state"), "stopped");
}

TEST(Watch, RunsTheUsersCommandForARunThatIsKilled) {
  const Place place("llama_linear", "steps: 100000\n");
  Process train({"train", place.config()});
  const std::string metrics = place.run() + "/metrics.jsonl";
  ASSERT_TRUE(eventually([&] { return fs::exists(metrics) && fs::file_size(metrics) > 0; }));
  Process watch({"watch", place.run(), "--json", "--follow", "--alert-command", "cat >> " + (place / "alert")}, "",
                into(place / "out"));
  ASSERT_TRUE(eventually([&] { return fs::exists(place / "out") && !read_bytes(place / "out").empty(); }));
  train.signal(SIGKILL);
  train.wait();
  const Outcome outcome = watch.wait();
  EXPECT_EQ(outcome.code, 137) << outcome.err;
  const std::vector<json> lines = json_lines(read_bytes(place / "out"));
  EXPECT_EQ(lines.back().at("state"), "killed");
  // A machine short of memory or disk produces further alerts.
  const auto ends_of = [](std::vector<json> alerts) {
    std::erase_if(alerts, [](const json& alert) { return alert.at("alert") != "ended"; });
    return alerts;
  };
  const std::vector<json> told = ends_of(events_of(lines, "alert"));
  ASSERT_EQ(told.size(), 1u);
  std::vector<json> commanded;
  ASSERT_TRUE(eventually([&] {
    const std::string text = read_bytes(place / "alert");
    if (text.ends_with("\n")) commanded = ends_of(json_lines(text));
    return !commanded.empty();
  }));
  EXPECT_EQ(commanded, told);
}

TEST(Watch, ServesAPageOnLoopbackUntilItIsStopped) {
  const Place place("llama_linear", "steps: 3\n");
  succeed({"train", place.config()});
  Process watch({"watch", place.run(), "--http", "0"}, "", into(place / "out"));
  ASSERT_TRUE(eventually([&] { return fs::exists(place / "out") && read_bytes(place / "out").ends_with("/\n"); }));
  const std::string url = read_bytes(place / "out");
  EXPECT_TRUE(url.starts_with("http://127.0.0.1:")) << url;
  const int port = std::stoi(url.substr(17));
  EXPECT_NE(ask(port, "GET", "/").body.find("step 3 of 3"), std::string::npos);
  EXPECT_EQ(ask(port, "GET", "/etc/passwd").status, 404);
  watch.signal(SIGTERM);
  EXPECT_EQ(watch.wait().code, 143);
}

TEST(Watch, RefusesWithASentence) {
  const Place place;
  expect_refusal({"watch"}, ExitCode::bad_config, {"run directories"});
  expect_refusal({"watch", place / "none"}, ExitCode::bad_config, {"terminal", "--json --follow", "--http"});
  expect_refusal({"watch", place / "none", "--json"}, ExitCode::bad_input, {"not a run", "--follow"});
  expect_refusal({"watch", place / "none", "--follow"}, ExitCode::bad_config, {"--follow", "--json"});
  expect_refusal({"watch", place / "none", "--json", "--http"}, ExitCode::bad_config, {"--http", "--json"});
  expect_refusal({"watch", place / "none", "--host", "localhost"}, ExitCode::bad_config, {"--host", "--http"});
  expect_refusal({"watch", place / "none", "--http", "99999"}, ExitCode::bad_config, {"99999", "port"});
  expect_refusal({"watch", place / "none", "--json", "--alert-spike=0.5"}, ExitCode::bad_config, {"--alert-spike"});
  expect_refusal({"watch", place / "none", "--json", "--alert-disk=much"}, ExitCode::bad_config,
                 {"--alert-disk", "much"});
  expect_refusal({"watch", place / "none", "--http", "80x"}, ExitCode::bad_config, {"80x", "port", "./80x"});
  expect_refusal({"watch", place / "none", "--json", "--follow", "--alert-command", ""}, ExitCode::bad_config,
                 {"--alert-command", "empty"});
  write_bytes(place / "file", "no run");
  expect_refusal({"watch", place / "file", "--json", "--follow"}, ExitCode::bad_input, {"is a file", "run directory"});
}

}  // namespace megatrain::cli
