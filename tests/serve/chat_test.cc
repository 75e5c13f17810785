// `megatrain chat` as scripts use it, by lines, and as people do, on a terminal.
#include <poll.h>
#include <termios.h>

#include <sstream>

#include "tests/cli/speaking_model.h"

namespace megatrain::cli {

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

json turn(const std::string& role, const std::string& content) { return {{"role", role}, {"content", content}}; }

// What `generate` answers to these messages.
std::string answer_to(const SpeakingModel& model, const std::vector<json>& messages, int max_tokens) {
  write_bytes(model / "asked.jsonl", json{{"messages", messages}}.dump() + "\n");
  const Outcome outcome =
      succeed(model.words({"--prompt-file", model / "asked.jsonl", "--max-tokens=" + std::to_string(max_tokens)}));
  return json::parse(outcome.out).at("text");
}

// The program on a terminal of its own.
class Terminal {
 public:
  explicit Terminal(const Words& words) : screen_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_EQ(::grantpt(screen_), 0);
    EXPECT_EQ(::unlockpt(screen_), 0);
    const std::string name = ::ptsname(screen_);
    Words all = {MEGATRAIN_PROGRAM};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setsid();
      const int terminal = ::open(name.c_str(), O_RDWR);  // the first one of a session is its own
      for (const int descriptor : {0, 1, 2}) ::dup2(terminal, descriptor);
      ::setenv("TERM", "xterm", 1);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~Terminal() { ::close(screen_); }

  void type(const std::string& keys) const {
    EXPECT_EQ(::write(screen_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }

  // Reads until the text has come, and forgets what came up to there; empty: it did not come within a minute.
  std::string until(const std::string& text) {
    for (;;) {
      if (const size_t at = shown_.find(text); at != std::string::npos) {
        const std::string before = shown_.substr(0, at + text.size());
        shown_.erase(0, before.size());
        return before;
      }
      pollfd input{.fd = screen_, .events = POLLIN};
      char bytes[4096];
      const ssize_t count = ::poll(&input, 1, 60000) == 1 ? ::read(screen_, bytes, sizeof bytes) : 0;
      if (count <= 0) {
        ADD_FAILURE() << "'" << text << "' did not come after: " << shown_;
        return "";
      }
      shown_.append(bytes, static_cast<size_t>(count));
    }
  }

  int wait() {
    char bytes[4096];
    while (::read(screen_, bytes, sizeof bytes) > 0) {  // EIO once the program has ended
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  int screen_;
  pid_t pid_ = 0;
  std::string shown_;
};

}  // namespace

TEST(Chat, LinesAreTurnsOfOneConversationAndOnlyAnswersArePrinted) {
  const SpeakingModel model;
  const Outcome outcome = succeed(model.words({"--max-tokens=12"}, "chat"), "hello\nand then\n");
  const std::string first = answer_to(model, {turn("user", "hello")}, 12);
  const std::string second =
      answer_to(model, {turn("user", "hello"), turn("assistant", first), turn("user", "and then")}, 12);
  EXPECT_EQ(outcome.out, first + "\n" + second + "\n");
}

TEST(Chat, CommandsChangeTheConversation) {
  const SpeakingModel model;
  const std::string saved = model / "saved.jsonl";
  const Outcome outcome =
      succeed(model.words({"--max-tokens=9", "--system", "be good"}, "chat"),
              "one\n/save " + saved + "\n/reset\none\n/system\n/reset\none\n/system kind\n//x\n\n/save " + saved +
                  "\n/help\n/quit\nnot asked\n");
  const std::vector<std::string> answers = lines_of(outcome.out);
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(answers[0], answer_to(model, {turn("system", "be good"), turn("user", "one")}, 9));
  EXPECT_EQ(answers[1], answers[0]);
  EXPECT_EQ(answers[2], answer_to(model, {turn("user", "one")}, 9));
  const std::vector<std::string> lines = lines_of(read_bytes(saved));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(json::parse(lines[0]).at("messages"),
            json({turn("system", "be good"), turn("user", "one"), turn("assistant", answers[0])}));
  EXPECT_EQ(json::parse(lines[1]).at("messages").at(3), turn("user", "/x"));
  EXPECT_EQ(json::parse(lines[1]).at("messages").at(0), turn("system", "kind"));
  EXPECT_NE(outcome.err.find("/save FILE"), std::string::npos);
}

TEST(Chat, JsonIsALineForEachAnswer) {
  const SpeakingModel model;
  const Outcome outcome = succeed(model.words({"--json", "--max-tokens=5"}, "chat"), "hello\nagain\n");
  const std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2u);
  const json first = json::parse(lines[0]);
  EXPECT_EQ(first.at("tokens"), 5);
  EXPECT_EQ(first.at("finish"), "length");
  EXPECT_GT(json::parse(lines[1]).at("prompt_tokens"), first.at("prompt_tokens"));
}

TEST(Chat, AFullContextIsSaidWithWhatToDo) {
  const SpeakingModel model;
  const Outcome full =
      megatrain(model.words({"--context=64", "--max-tokens=20"}, "chat"), "one two\nthree four\nfive six\nseven\n");
  EXPECT_EQ(full.code, static_cast<int>(ExitCode::bad_input));
  for (const char* part : {"the context is full", "context of 64", "/reset", "/save FILE", "--context"})
    EXPECT_NE(full.err.find(part), std::string::npos) << full.err;
  const Outcome cut = succeed(model.words({"--context=64"}, "chat"), "one two\n");
  EXPECT_NE(cut.err.find("ends here because the context is full"), std::string::npos) << cut.err;
}

TEST(Chat, RefusesWhatItCannotDo) {
  const SpeakingModel model("llama_linear", false);
  expect_refusal(model.words({}, "chat"), ExitCode::bad_input, {"no chat template", "megatrain generate"});
  expect_refusal(model.words({"--top-k=5"}, "chat"), ExitCode::bad_config, {"--temperature 1"});
  expect_refusal(model.words({"--context=1000"}, "chat"), ExitCode::bad_input, {"no chat template"});
  const SpeakingModel talking;
  expect_refusal(talking.words({"--context=1000"}, "chat"), ExitCode::bad_config, {"--context is 1000", "2 to 128"});
  const Outcome unknown = megatrain(talking.words({}, "chat"), "/rest\n");
  EXPECT_EQ(unknown.code, static_cast<int>(ExitCode::bad_config));
  EXPECT_NE(unknown.err.find("\"/rest\" is no command"), std::string::npos) << unknown.err;
}

TEST(Chat, OnATerminalCtrlCStopsTheAnswerAndCtrlDEnds) {
  const SpeakingModel model;
  model.make_endless();
  Terminal terminal(model.words({"--context=200000", "--temperature=1"}, "chat"));
  terminal.until("ctrl-D ends");
  terminal.until("> ");
  terminal.type("half\x03");
  terminal.until("ctrl-D or /quit ends");
  terminal.until("> ");
  terminal.type("go on\r");
  terminal.until("go on\r\n");
  terminal.until(" ");  // something of the answer
  terminal.type("\x03");
  terminal.until("stopped");
  terminal.until("> ");
  terminal.type("/nothing\r");
  terminal.until("is no command");
  terminal.until("> ");
  terminal.type("/save /nowhere/at/all.jsonl\r");
  terminal.until("No such file");
  terminal.until("> ");
  const std::string saved = model / "saved.jsonl";
  terminal.type("/save " + saved + "\r");
  terminal.until("added to");
  EXPECT_EQ(json::parse(read_bytes(saved)).at("messages").at(0), turn("user", "go on"));
  terminal.until("> ");
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST(Chat, LinesAreEditedAndRememberedOnATerminal) {
  const SpeakingModel model;
  Terminal terminal(model.words({"--max-tokens=8", "--json"}, "chat"));
  terminal.until("> ");
  terminal.type("hellp\x7fo\r");  // backspace
  const std::string first = terminal.until("}");
  terminal.until("> ");
  terminal.type("/reset\r");
  terminal.until("a new conversation");
  terminal.until("> ");
  terminal.type("\x1b[A\x1b[A\r");  // up, up
  const std::string second = terminal.until("}");
  EXPECT_EQ(first.substr(first.find('{')), second.substr(second.find('{')));
  const std::string wanted = answer_to(model, {turn("user", "hello")}, 8);
  EXPECT_NE(first.find("\"text\":\"" + wanted + "\""), std::string::npos) << first;
  terminal.until("> ");
  terminal.type("two \\\rlines\r");
  terminal.until("}");
  terminal.until("> ");
  terminal.type("/save " + (model / "saved.jsonl") + "\r");
  terminal.until("added to");
  EXPECT_EQ(json::parse(read_bytes(model / "saved.jsonl")).at("messages").at(2), turn("user", "two \nlines"));
  terminal.type("/quit\r");
  EXPECT_EQ(terminal.wait(), 0);
}

}  // namespace megatrain::cli
