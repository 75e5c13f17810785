// `megatrain chat` as scripts use it, by lines, and as people do, on a terminal.
#include <chrono>
#include <sstream>
#include <thread>

#include "tests/support/on_terminal.h"
#include "tests/support/places.h"
#include "tests/support/speaking_model.h"

namespace megatrain::cli {

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

json turn(const std::string& role, const std::string& content) { return {{"role", role}, {"content", content}}; }

// The answer of `generate` to these messages.
std::string answer_to(const SpeakingModel& model, const std::vector<json>& messages, int max_tokens) {
  write_bytes(model / "asked.jsonl", json{{"messages", messages}}.dump() + "\n");
  const Outcome outcome =
      succeed(model.words({"--prompt-file", model / "asked.jsonl", "--max-tokens=" + std::to_string(max_tokens)}));
  return json::parse(outcome.out).at("text");
}

// Waits for the answer in `terminal`, saves the conversation and quits. Returns the saved messages.
json saved_messages(const SpeakingModel& model, OnTerminal& terminal) {
  terminal.until("}");
  terminal.until("> ");
  const std::string saved = model / "saved.jsonl";
  terminal.type("/save " + saved + "\r");
  terminal.until("added to");
  terminal.type("/quit\r");
  EXPECT_EQ(terminal.wait(), 0);
  return json::parse(read_bytes(saved)).at("messages");
}

// The message that is sent when `keys` and then Enter are typed on a terminal.
std::string message_typed(const std::string& keys) {
  const SpeakingModel model;
  OnTerminal terminal(model.words({"--max-tokens=8", "--json"}, "chat"));
  terminal.until("\x1b[?2004h");  // bracketed paste is on
  terminal.until("> ");
  terminal.type(keys + "\r");
  return saved_messages(model, terminal).at(0).at("content");
}

// More bytes than a prompt with a line shows, which a slow machine may print twice.
constexpr size_t kOfAnAnswer = 400;

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
  EXPECT_NE(outcome.err.find("1 answer ended before the model was done"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("Ctrl-C"), std::string::npos) << outcome.err;  // input is not typed
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
  const Outcome single = megatrain(model.words({"--context=64"}, "chat"), "\n" + std::string(100, 'a') + "\n");
  EXPECT_EQ(single.code, static_cast<int>(ExitCode::bad_input));
  for (const char* part : {"line 2 of standard input", "the message is too long", "shorten it", "larger --context"})
    EXPECT_NE(single.err.find(part), std::string::npos) << single.err;
  EXPECT_EQ(single.err.find("/reset"), std::string::npos) << single.err;
}

TEST(Chat, RefusesWhatItCannotDo) {
  const SpeakingModel model("llama_linear", false);
  expect_refusal(model.words({}, "chat"), ExitCode::bad_input, {"no chat template", "megatrain generate"});
  expect_refusal(model.words({"--top-k=5"}, "chat"), ExitCode::bad_config, {"--temperature 1"});
  expect_refusal(model.words({"--context=1000"}, "chat"), ExitCode::bad_input, {"no chat template"});
  const SpeakingModel talking;
  expect_refusal(talking.words({"--context=1000"}, "chat"), ExitCode::bad_config, {"--context is 1000", "2 to 128"});
  for (const std::string name : {"/quit", "/reset", "/help"}) {
    const Outcome more = megatrain(talking.words({}, "chat"), name + " now\n");
    EXPECT_EQ(more.code, static_cast<int>(ExitCode::bad_config));
    EXPECT_NE(more.err.find(name + " takes no argument, \"now\" was given"), std::string::npos) << more.err;
  }
  const Outcome nowhere = megatrain(talking.words({"--max-tokens=2"}, "chat"), "one\n/save /nowhere/at/all.jsonl\n");
  EXPECT_EQ(nowhere.code, static_cast<int>(ExitCode::io));
  EXPECT_NE(nowhere.err.find("line 2 of standard input"), std::string::npos) << nowhere.err;
  const Outcome unknown = megatrain(talking.words({}, "chat"), "/rest\n");
  EXPECT_EQ(unknown.code, static_cast<int>(ExitCode::bad_config));
  EXPECT_NE(unknown.err.find("\"/rest\" is not a command"), std::string::npos) << unknown.err;
  const Outcome bytes = megatrain(talking.words({}, "chat"), "one\ntwo \xff\n");
  EXPECT_EQ(bytes.code, static_cast<int>(ExitCode::bad_input));
  EXPECT_NE(bytes.err.find("line 2 of standard input: "), std::string::npos) << bytes.err;
  const Outcome folder = megatrain(talking.words({"--max-tokens=2"}, "chat"), "one\n/save /\n");
  EXPECT_EQ(folder.code, static_cast<int>(ExitCode::bad_config));
  EXPECT_NE(folder.err.find("is a directory; /save takes the name of a file"), std::string::npos) << folder.err;
}

TEST(Chat, OnATerminalCtrlCStopsTheAnswerAndCtrlDEnds) {
  const SpeakingModel model;
  model.make_endless();
  OnTerminal terminal(model.words({"--context=200000", "--temperature=1"}, "chat"));
  terminal.until("ctrl-D ends");
  terminal.until("> ");
  terminal.type("half\x03");
  terminal.until("ctrl-D or /quit ends");
  terminal.until("> ");
  terminal.type("go on\r");
  terminal.until_bytes(kOfAnAnswer);
  terminal.type("\x03");
  terminal.until("stopped");
  terminal.until("> ");
  terminal.type("/nothing\r");
  terminal.until("is not a command");
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

// The terminal is not in raw mode during an answer, and would turn ctrl-D into a zero byte.
TEST(Chat, CtrlDTypedDuringAnAnswerEndsAfterIt) {
  const SpeakingModel model;
  model.make_endless();
  OnTerminal terminal(model.words({"--context=200000", "--temperature=1", "--max-tokens=3000"}, "chat"));
  terminal.until("> ");
  terminal.type("go on\r");
  terminal.until_bytes(kOfAnAnswer);
  terminal.type("\x04");
  terminal.until("because of --max-tokens");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST(Chat, APasteIsOneMessageWithItsLinesAndTabs) {
  const std::string paste = "\x1b[200~one \xc3\xa9\rtwo\tand \\\r\x1b[Athree\x15\r\x1b[201~";
  EXPECT_EQ(message_typed("see: " + paste + "!"), "see: one \xc3\xa9\ntwo\tand \\\n[Athree!");
}

TEST(Chat, ALineEndOfTwoBytesIsOneInAPaste) {
  EXPECT_EQ(message_typed("\x1b[200~one\r\n\r\ntwo\nthree\r\n\x1b[201~"), "one\n\ntwo\nthree");
}

TEST(Chat, PastedLinesAreTextWhateverTheyBeginWith) {
  EXPECT_EQ(message_typed("\x1b[200~/quit\rand more\x1b[201~"), "/quit\nand more");
  EXPECT_EQ(message_typed("\x1b[200~// a comment\rint x;\x1b[201~"), "// a comment\nint x;");
  EXPECT_EQ(message_typed("\x1b[200~// one line\x1b[201~"), "/ one line") << "as it is when typed";
  EXPECT_EQ(message_typed("/system \x1b[200~one\rtwo\x1b[201~\rhello"), "one\ntwo") << "the command was typed";
}

TEST(Chat, TheMarksOfAPasteMayComeInParts) {
  const SpeakingModel model;
  OnTerminal terminal(model.words({"--max-tokens=8", "--json"}, "chat"));
  terminal.until("> ");
  for (const char* part : {"\x1b[2", "00~one\rtwo\x1b", "[20", "1~!\r"}) {
    terminal.type(part);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));  // a slow connection
  }
  EXPECT_EQ(saved_messages(model, terminal).at(0), turn("user", "one\ntwo!"));
}

TEST(Chat, ABackslashAtTheEndOfAPasteIsText) {
  EXPECT_EQ(message_typed("\x1b[200~one \\\r\x1b[201~"), "one \\");
  EXPECT_EQ(message_typed("\x1b[200~one \\\x1b[201~"), "one \\");
  EXPECT_EQ(message_typed("\x1b[200~one\x1b[201~\\\rtwo"), "one\ntwo") << "typed, it goes on";
}

// ctrl-C, ctrl-Z, ctrl-\, ctrl-S, ctrl-D, ctrl-left and U+009B.
TEST(Chat, ControlCharactersInAPasteAreNoKeys) {
  EXPECT_EQ(message_typed("\x1b[200~hello\x03 and\x1a\x1c\x13\x04 bye\x1b[1;5D\xc2\x9b\x1b[201~"),
            "hello and bye[1;5D");
}

TEST(Chat, CtrlBackslashThatIsTypedEndsTheProcess) {
  const SpeakingModel model;
  OnTerminal terminal(model.words({"--max-tokens=8"}, "chat"));
  terminal.until("\x1b[?2004h");
  terminal.until("> ");
  EXPECT_TRUE(terminal.is_raw());
  terminal.type("half a\x1c");
  terminal.until("\x1b[?2004l");
  EXPECT_EQ(terminal.wait(), -SIGQUIT);
  EXPECT_TRUE(terminal.is_as_before());
}

TEST(Chat, ErrorsHaveNoColourOnADumbTerminal) {
  const SpeakingModel model;
  for (const std::string name : {"dumb", "xterm"}) {
    OnTerminal terminal(model.words({}, "chat"), name);
    terminal.until("> ");
    terminal.type("/nothing\r");
    const std::string shown = terminal.until("is not a command");
    EXPECT_EQ(shown.find("\x1b[31m") == std::string::npos, name == "dumb") << shown;
    terminal.type("/quit\r");
    EXPECT_EQ(terminal.wait(), 0);
  }
}

TEST(Chat, KeysWithoutAUseTypeNothing) {
  EXPECT_EQ(message_typed(std::string(1, '\0') + "one"), "one");  // ctrl-space ends nothing
  // ctrl-left twice, page up, F5, shift-tab, F1, ctrl-right, end
  EXPECT_EQ(message_typed("one two\x1b[1;5D\x1b[1;5D<\x1b[5~\x1b[15~\x1b[Z\x1bOP\x1b[1;5C>\x1b[F!"), "<one> two!");
  EXPECT_EQ(message_typed("caf\xe9 x\xc3"), "caf\uFFFD x\uFFFD");  // invalid UTF-8
}

TEST(Chat, AStoppedProcessTakesTheTerminalAgain) {
  const SpeakingModel model;
  OnTerminal terminal(model.words({"--max-tokens=8"}, "chat"));
  terminal.until("> ");
  terminal.type("half a");
  terminal.until("half a");
  terminal.stop_and_go_on();
  terminal.until("> half a");
  EXPECT_TRUE(terminal.is_raw());
  terminal.type("\x04\x15");
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST(Chat, LinesAreEditedAndRememberedOnATerminal) {
  const SpeakingModel model;
  OnTerminal terminal(model.words({"--max-tokens=8", "--json"}, "chat"));
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
