#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/escape.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/cli/answer_arguments.h"
#include "megatrain/cli/line_editor.h"
#include "megatrain/cli/model_arguments.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/inference/loaded_model.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/line_file.h"

namespace megatrain {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp =
    R"(  /reset         begins a new conversation; the system message stays
  /system TEXT   sets the system message; without TEXT it is removed
  /save FILE     adds the conversation to FILE as one line of JSON, in the form that data.train reads
  /help          this list
  /quit          ends, as ctrl-D does
// begins a message with a slash.
)";
constexpr const char* kTypedHelp =
    "A line that ends in \\ continues on the next line, and a paste is one message. Ctrl-C stops an answer.\n";

// Signal handlers can only reach globals. The first flag ends an answer, the second the program.
volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t ended_by = 0;

void on_interrupt(int signal) {
  if (signal != SIGINT) ended_by = signal;
  interrupted = signal;
}

void say(const std::string& sentence) { log_info(sentence); }

void print(const std::string& text) { print_result(text, "answer"); }

std::string trimmed_line(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t") + 1 - begin));
}

class Conversation {
 public:
  Conversation(LoadedModel& model, const Arguments& arguments)
      : model_(model),
        answering_{.sampling = read_sampling(arguments), .stops = read_stops(arguments), .stop = &interrupted},
        max_tokens_(read_max_tokens(arguments)),
        system_(arguments.option("--system").value_or("")),
        json_(arguments.json()),
        typed_(isatty(STDIN_FILENO) == 1) {
    answering_.reuse = true;
    if (json_) return;
    // A model may emit control sequences, which a terminal would execute.
    answering_.on_text = [watched = isatty(STDOUT_FILENO) == 1](size_t, const std::string& text) {
      print(watched ? escape_controls(text) : text);
    };
  }

  void open(std::optional<int64_t> context) { generator_ = &model_.generator_with(context, 1, 1); }

  // Handles a line of input: a command, or a message. `is_text` makes it a message whatever it begins with. Returns
  // false at the end of the conversation.
  bool take(const std::string& line, bool is_text = false) {
    if (line.empty()) return true;
    if (is_text) {
      answer_to(line);
      return true;
    }
    if (!line.starts_with('/') || line.starts_with("//")) {
      answer_to(line.starts_with('/') ? line.substr(1) : line);
      return true;
    }
    const size_t space = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, space), rest = trimmed_line(std::string_view(line).substr(space));
    if (!rest.empty() && (name == "/quit" || name == "/help" || name == "/reset"))
      fail_config(fmt::format("{} takes no argument, {} was given", name, printable(rest)));
    if (name == "/quit") return false;
    if (name == "/help") {
      std::fputs(kHelp, stderr);
      if (typed_) std::fputs(kTypedHelp, stderr);
    } else if (name == "/reset") {
      messages_ = Json::array();
      cut_answers_ = 0;
      if (typed_) say("a new conversation");
    } else if (name == "/system") {
      system_ = rest;
      if (typed_) say(rest.empty() ? "there is no system message now" : "the system message is set");
    } else if (name == "/save") {
      save(rest);
    } else {
      fail_config(
          fmt::format("{} is not a command; /help lists them, and // begins a message with a slash", printable(name)));
    }
    return true;
  }

 private:
  Json all_messages() const {
    Json all = messages_;
    if (!system_.empty()) all.insert(all.begin(), Json{{"role", "system"}, {"content", system_}});
    return all;
  }

  void save(const std::string& path) const {
    if (path.empty()) fail_config("/save takes the name of a file");
    if (messages_.empty()) fail_config("there is nothing to save yet");
    if (std::error_code none; std::filesystem::is_directory(path, none))
      fail_config(fmt::format("{} is a directory; /save takes the name of a file", printable(path)));
    LineFile(path).append(json_text(Json{{"messages", all_messages()}}));
    if (cut_answers_ > 0)
      log_warn(
          fmt::format("{} ended before the model was done; the part that came is saved, and a model trained on it "
                      "learns to end there",
                      counted(cut_answers_, "answer")));
    if (typed_) say(fmt::format("added to {}", path));
  }

  std::string make_room() const {
    const bool whole = generator_->forward().options().max_context == model_.config().max_position;
    return fmt::format("/reset begins a new conversation, after /save FILE if it is worth keeping{}",
                       whole ? "" : "; a larger --context holds more");
  }

  Prompt prompt() const {
    const int64_t context = generator_->forward().options().max_context;
    Prompt prompt{.ids = model_.text().encode_chat(all_messages()), .chat = true};
    const int64_t tokens = std::ssize(prompt.ids);
    if (tokens >= context && messages_.size() == 1) {
      const bool whole = context == model_.config().max_position;
      fail_input(
          fmt::format("the message is too long: it has {} tokens{}, and the context of {} must hold the answer too; "
                      "shorten it{}",
                      tokens, system_.empty() ? "" : " with the system message", context,
                      whole ? "" : ", or give a larger --context"));
    }
    if (tokens >= context) {
      fail_input(
          fmt::format("the context is full: the conversation has {} tokens with this message, and the context "
                      "of {} must hold the answer too. {}",
                      tokens, context, make_room()));
    }
    prompt.max_tokens = max_tokens_.value_or(context);
    return prompt;
  }

  // A message without an answer is removed from the conversation.
  void answer_to(const std::string& text) {
    const Json before = messages_;
    messages_.push_back({{"role", "user"}, {"content", text}});
    try {
      const Prompt asked = prompt();
      const Answer got = answer(*generator_, model_.text(), {asked}, answering_)[0];
      end_answer(asked, got);
      if (got.ids.empty()) {
        messages_ = before;
      } else {
        messages_.push_back({{"role", "assistant"}, {"content", got.text}});
        if (got.finish == Finish::length) ++cut_answers_;
      }
    } catch (const Error&) {
      messages_ = before;
      throw;
    }
  }

  void end_answer(const Prompt& asked, const Answer& got) const {
    const int64_t tokens = std::ssize(got.ids), all = std::ssize(asked.ids) + tokens;
    const bool full = got.finish == Finish::length && all >= generator_->forward().options().max_context;
    if (json_) {
      print(json_text(Json{{"text", got.text},
                           {"prompt_tokens", asked.ids.size()},
                           {"tokens", tokens},
                           {"finish", got.finish == Finish::stop ? "stop" : "length"}}) +
            "\n");
    } else {
      print("\n");
    }
    if (interrupted != 0) {
      say(got.ids.empty() ? "stopped; your message is removed from the conversation"
                          : "stopped; the answer so far is kept");
    } else if (full) {
      say(fmt::format("the answer ends here because the context is full. {}", make_room()));
    } else if (got.finish == Finish::length) {
      say(fmt::format("the answer ends here because of --max-tokens {}", asked.max_tokens));
    }
  }

  LoadedModel& model_;
  AnswerOptions answering_;
  std::optional<int64_t> max_tokens_;
  std::string system_;
  bool json_, typed_;
  Generator* generator_ = nullptr;
  Json messages_ = Json::array();
  int64_t cut_answers_ = 0;  // in messages_: cut short by ctrl-C, --max-tokens or the context
};

// Reads one message per line and prints only the answers. Stops at the first error.
int read_lines(Conversation& conversation) {
  int64_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    try {
      if (!conversation.take(line)) break;
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_input && error.code() != ExitCode::bad_config && error.code() != ExitCode::io)
        throw;
      fail(error.code(), fmt::format("line {} of standard input: {}", number, error.what()));
    }
  }
  return 0;
}

int converse(Conversation& conversation) {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  for (const int signal : {SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
  action.sa_flags = SA_RESTART;  // ctrl-C stops an answer, but must not interrupt writing it
  ::sigaction(SIGINT, &action, nullptr);
  LineEditor editor(&interrupted);
  say("/help lists the commands, ctrl-C stops an answer, ctrl-D ends");
  std::string message;
  bool is_text = false;  // pasted lines are never commands
  for (;;) {
    std::string line;
    interrupted = ended_by;
    const LineEditor::Got got = editor.read(message.empty() ? "> " : "… ", line);
    if (ended_by != 0) return 128 + ended_by;
    if (got == LineEditor::Got::end) return 0;
    if (got == LineEditor::Got::interrupt) {
      message.clear();
      is_text = false;
      say("ctrl-D or /quit ends");
      continue;
    }
    if (got != LineEditor::Got::line) {
      if (message.empty()) is_text = got == LineEditor::Got::pasted_part;
      message += line + "\n";
      continue;
    }
    try {
      if (!conversation.take(std::exchange(message, "") + line, std::exchange(is_text, false))) return 0;
    } catch (const Error& error) {
      if (ended_by != 0) return 128 + ended_by;
      if (std::ferror(stdout) != 0) throw;
      say_error(error.what());
    }
  }
}

}  // namespace

int verb_chat(const Arguments& arguments) {
  const std::string& name = arguments.one("MODEL or RUN");
  const std::optional<int64_t> context = arguments.integer("--context");
  LoadedModel model(name, loaded_model_settings(arguments), "chat");
  Conversation conversation(model, arguments);
  if (!model.text().chat_template) {
    fail_input(fmt::format(
        "{} has no chat template, so it cannot hold a conversation; 'megatrain generate {}' continues a text", name,
        name));
  }
  conversation.open(context);
  return isatty(STDIN_FILENO) == 1 ? converse(conversation) : read_lines(conversation);
}

}  // namespace megatrain
