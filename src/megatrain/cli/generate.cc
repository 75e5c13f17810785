#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"
#include "megatrain/base/escape.h"
#include "megatrain/base/units.h"
#include "megatrain/cli/answer_arguments.h"
#include "megatrain/cli/model_arguments.h"
#include "megatrain/cli/prompt_columns.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/dataset/json_rows.h"
#include "megatrain/inference/loaded_model.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"

namespace megatrain {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultTokens = 256;
constexpr int64_t kMostPromptBytes = kGiB;

std::string without_last_line_end(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::string read_prompt_text(const Arguments& arguments) {
  if (const auto text = arguments.option("--prompt")) return *text;
  if (const auto path = arguments.option("--prompt-file"))
    return without_last_line_end(read_text_file(*path, kMostPromptBytes));
  return without_last_line_end({std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()});
}

Json conversation(const Arguments& arguments, Json messages) {
  if (const auto system = arguments.option("--system"))
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", *system}});
  return messages;
}

Prompt text_prompt(const LoadedModel& model, const Arguments& arguments, const std::string& text,
                   const std::string& where) {
  if (!arguments.flag("--chat")) return model.prompt(text, where);
  return model.chat_prompt(conversation(arguments, Json::array({{{"role", "user"}, {"content", text}}})), where);
}

std::vector<Prompt> read_prompt_lines(const LoadedModel& model, const Arguments& arguments, const std::string& path) {
  std::vector<Prompt> prompts;
  JsonRows rows(path);
  PromptColumns columns;
  while (const auto row = rows.next()) {
    columns.check(*row);
    if (row->object.contains("messages")) {
      prompts.push_back(model.chat_prompt(conversation(arguments, messages_field(*row)), row->where));
    } else {
      prompts.push_back(text_prompt(model, arguments, text_field(*row, "prompt"), row->where));
    }
  }
  columns.warn(path);
  return prompts;
}

Json to_json(const Prompt& prompt, const Answer& answer) {
  return {{"text", answer.text},
          {"prompt_tokens", prompt.ids.size()},
          {"tokens", answer.ids.size()},
          {"ids", answer.ids},
          {"finish", answer.finish == Finish::stop ? "stop" : "length"}};
}

// The text is valid UTF-8: the decoder replaces invalid bytes.
void print_line(const Json& json) {
  fmt::print("{}\n", json_text(json));
  std::fflush(stdout);
}

}  // namespace

int verb_generate(const Arguments& arguments) {
  const std::string& name = arguments.one("MODEL or RUN");
  const bool chat = arguments.flag("--chat"), json = arguments.json();
  const auto file = arguments.option("--prompt-file");
  const bool lines = file && file->ends_with(".jsonl");
  if (file && arguments.option("--prompt")) fail_config("--prompt and --prompt-file were both given; give one");
  if (arguments.option("--system") && !chat && !lines)
    fail_config("--system is a message of a conversation; add --chat");
  AnswerOptions answering{.sampling = read_sampling(arguments), .stops = read_stops(arguments)};
  const int64_t max_tokens = read_max_tokens(arguments).value_or(kDefaultTokens);

  LoadedModel model(name, loaded_model_settings(arguments), "generate");
  std::vector<Prompt> prompts;
  if (lines) {
    prompts = read_prompt_lines(model, arguments, *file);
  } else {
    prompts = {text_prompt(model, arguments, read_prompt_text(arguments), "")};
  }
  for (Prompt& prompt : prompts) prompt.max_tokens = max_tokens;
  Generator& generator = model.generator_for(prompts);

  if (lines) {
    answering.on_answer = [&](size_t i, const Answer& answer) { print_line(to_json(prompts[i], answer)); };
  } else if (!json) {
    // A model may emit control sequences, which a terminal would execute.
    answering.on_text = [watched = isatty(STDOUT_FILENO) == 1](size_t, const std::string& text) {
      const std::string shown = watched ? escape_controls(text) : text;
      std::fwrite(shown.data(), 1, shown.size(), stdout);
      std::fflush(stdout);
    };
  }
  const double start = now_s();
  const std::vector<Answer> answers = answer(generator, model.text(), prompts, answering);
  const double seconds = now_s() - start;
  if (lines) return 0;
  if (!json) {
    fmt::print("\n");
    return 0;
  }
  Json object = to_json(prompts[0], answers[0]);
  object["seconds"] = seconds;
  object["tokens_per_s"] = static_cast<double>(answers[0].ids.size()) / seconds;
  print_line(object);
  return 0;
}

}  // namespace megatrain
