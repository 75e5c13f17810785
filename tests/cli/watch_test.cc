#include <poll.h>
#include <termios.h>

#include "tests/cli/command.h"
#include "tests/http/client.h"

namespace megatrain::cli {

namespace {

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

std::vector<json> events_of(const std::vector<json>& lines, const std::string& name) {
  std::vector<json> found;
  for (const json& line : lines) {
    if (line.at("event") == name) found.push_back(line);
  }
  return found;
}

// For sh: standard output goes where the test can read it meanwhile.
std::string into(const std::string& file) { return "exec \"$0\" \"$@\" > '" + file + "'"; }

// The program on a terminal of its own.
class OnTerminal {
 public:
  explicit OnTerminal(Words words) : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    EXPECT_EQ(::grantpt(master_) | ::unlockpt(master_), 0);
    const std::string name = ::ptsname(master_);
    slave_ = ::open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
    words.insert(words.begin(), MEGATRAIN_PROGRAM);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    before_ = settings();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int descriptor : {0, 1, 2}) posix_spawn_file_actions_adddup2(&actions, slave_, descriptor);
    EXPECT_EQ(::posix_spawn(&pid_, MEGATRAIN_PROGRAM, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~OnTerminal() {
    ::close(master_);
    ::close(slave_);
  }

  // Until it has shown this.
  bool shows(const std::string& text) {
    return eventually([&] {
      pollfd ready{.fd = master_, .events = POLLIN};
      char bytes[4096];
      while (::poll(&ready, 1, 0) == 1) {
        const ssize_t got = ::read(master_, bytes, sizeof bytes);
        if (got <= 0) break;
        shown_.append(bytes, static_cast<size_t>(got));
      }
      return shown_.find(text) != std::string::npos;
    });
  }
  void type(const std::string& keys) const { EXPECT_EQ(::write(master_, keys.data(), keys.size()), std::ssize(keys)); }
  void signal(int number) const { ::kill(pid_, number); }
  int wait() const {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  bool is_raw() const { return (settings().c_lflag & (ICANON | ECHO)) == 0; }
  bool is_as_before() const {
    const termios now = settings();
    return now.c_lflag == before_.c_lflag && now.c_iflag == before_.c_iflag && now.c_cc[VSUSP] == before_.c_cc[VSUSP];
  }

 private:
  termios settings() const {
    termios found{};
    EXPECT_EQ(::tcgetattr(slave_, &found), 0);
    return found;
  }
  int master_ = -1, slave_ = -1;
  pid_t pid_ = 0;
  termios before_{};
  std::string shown_;
};

}  // namespace

TEST(Watch, DrawsOnATerminalAndLeavesItAsItWas) {
  const std::string leaves = "\x1b[?25h\x1b[?1049l";  // the cursor is back, and the screen that was there before
  const Place place("llama_linear", "steps: 3\n");
  succeed({"train", place.config()});
  OnTerminal quits({"watch", place.run()});
  ASSERT_TRUE(quits.shows("step 3 of 3"));
  EXPECT_TRUE(quits.is_raw());
  quits.type("l");
  EXPECT_TRUE(quits.shows("loss (log) over steps"));
  quits.type("x");
  EXPECT_TRUE(quits.shows("over tokens"));
  quits.type("m");
  EXPECT_TRUE(quits.shows("gradient norm"));
  quits.type("q");
  EXPECT_TRUE(quits.shows(leaves));
  EXPECT_EQ(quits.wait(), 0);
  EXPECT_TRUE(quits.is_as_before());
  OnTerminal stopped({"watch", place / "later"});
  ASSERT_TRUE(stopped.shows("waiting for the run"));
  stopped.signal(SIGTERM);
  EXPECT_TRUE(stopped.shows(leaves));
  EXPECT_EQ(stopped.wait(), 143);
  EXPECT_TRUE(stopped.is_as_before());
}

TEST(Watch, FollowsARunFromBeforeItsStartToItsEnd) {
  const Place place("llama_linear", "steps: 6\n");
  Process watch({"watch", place.run(), "--json", "--follow"});
  ASSERT_TRUE(eventually([&] { return watch.said().find("waiting") != std::string::npos; }));
  succeed({"train", place.config()});
  const Outcome outcome = watch.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<json> lines = lines_of(outcome.out), steps = events_of(lines, "step"),
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
  EXPECT_EQ(live.at("lanes").at("step"), 1) << "the first step's; six take less than the seconds between two";
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
  EXPECT_EQ(lines_of(stopped.out).back().at("state"), "stopped");
}

TEST(Watch, RunsTheUsersCommandForARunThatIsKilled) {
  const Place place("llama_linear", "steps: 100000\n");
  Process train({"train", place.config()});
  const std::string metrics = place.run() + "/metrics.jsonl";
  ASSERT_TRUE(eventually([&] { return fs::exists(metrics) && fs::file_size(metrics) > 0; }));
  Process watch({"watch", place.run(), "--json", "--follow", "--alert-command", "cat > " + (place / "alert")}, "",
                into(place / "out"));
  ASSERT_TRUE(eventually([&] { return fs::exists(place / "out") && !read_bytes(place / "out").empty(); }));
  train.signal(SIGKILL);
  train.wait();
  const Outcome outcome = watch.wait();
  EXPECT_EQ(outcome.code, 137) << outcome.err;
  const std::vector<json> lines = lines_of(read_bytes(place / "out"));
  EXPECT_EQ(lines.back().at("state"), "killed");
  ASSERT_EQ(events_of(lines, "alert").size(), 1u);
  ASSERT_TRUE(eventually([&] { return fs::exists(place / "alert") && !read_bytes(place / "alert").empty(); }));
  EXPECT_EQ(json::parse(read_bytes(place / "alert")), events_of(lines, "alert")[0]);
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
  expect_refusal({"watch", place / "none", "--json", "--alert-disk=much"}, ExitCode::bad_config, {"much"});
  write_bytes(place / "file", "no run");
  expect_refusal({"watch", place / "file", "--json", "--follow"}, ExitCode::bad_input, {"is a file", "run directory"});
}

}  // namespace megatrain::cli
