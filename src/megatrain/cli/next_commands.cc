#include "megatrain/cli/next_commands.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/shell_word.h"
#include "megatrain/base/units.h"
#include "megatrain/io/replace.h"
#include "megatrain/run/best_model.h"
#include "megatrain/run/trackers.h"

namespace megatrain {

namespace {

bool exists(const std::string& path) {
  std::error_code none;
  return std::filesystem::exists(path, none);
}

bool has_chat_template(const std::string& model) {
  if (exists(model + "/chat_template.jinja")) return true;
  constexpr int64_t kMost = 256 * kMiB;
  try {
    const std::string text = read_text_if_there(model + "/tokenizer_config.json", kMost).value_or("");
    return text.find("\"chat_template\"") != std::string::npos;
  } catch (const Error&) {
    return false;  // the run itself succeeded, so a failure here is not reported
  }
}

// The command line that started this run, with --resume if there is a checkpoint.
std::string train_again(const Arguments& arguments, bool resume) {
  std::string command = shell_word(arguments.program()) + " train";
  for (const std::vector<std::string>& words : {arguments.plain(), arguments.overrides()}) {
    for (const std::string& word : words) command.append(1, ' ').append(shell_word(word));
  }
  return command + (resume && !arguments.overrides("resume") ? " --resume" : "");
}

std::string prompt_of(const TrainConfig& config) {
  constexpr size_t kMost = 80;
  const std::vector<std::string>& prompts = config.sample.prompts;
  return prompts.empty() || prompts[0].size() > kMost ? "Hello" : prompts[0];
}

}  // namespace

std::vector<NextCommand> next_commands(const RunResult& result, const TrainConfig& config, const Arguments& arguments) {
  const std::string program = shell_word(arguments.program()), run = shell_word(result.run_dir);
  std::vector<NextCommand> commands;
  const auto add = [&](std::string command, std::string does) {
    commands.push_back({.command = std::move(command), .does = std::move(does)});
  };
  if (result.stopped_by) {
    add(train_again(arguments, result.resumable), result.resumable ? "resumes from here" : "starts again");
    if (!result.resumable) return commands;
    add(fmt::format("{} export {} --out {}", program, run,
                    shell_word(fmt::format("{}-step-{}", result.run_dir, result.step))),
        "a Hugging Face directory of what it has learnt so far");
  } else if (exists(result.run_dir + "/model/tokenizer.json")) {
    const bool chat = has_chat_template(result.run_dir + "/model");
    const auto best = find_best_model(result.run_dir);
    const std::string model = best ? shell_word(best->path) : run;
    add(fmt::format("{} generate {}{} --prompt {}", program, model, chat ? " --chat" : "",
                    shell_word(prompt_of(config))),
        best ? fmt::format("asks the model of step {}, the lowest evaluation loss", best->step) : "asks the model");
    if (chat) add(fmt::format("{} chat {}", program, model), "talks with it");
  }
  if (result.step > 0) add(fmt::format("{} report {}", program, run), "writes an HTML page about the run");
  for (const TrackCommand& track : track_commands(config))
    add(track.command, fmt::format("shows the run in {}", track.program));
  return commands;
}

void log_next_commands(const std::vector<NextCommand>& commands) {
  if (commands.empty()) return;
  size_t width = 0;
  constexpr size_t kMostWidth = 72;
  for (const NextCommand& next : commands)
    if (next.command.size() <= kMostWidth) width = std::max(width, next.command.size());
  log_info("next:");
  for (const NextCommand& next : commands) log_info(fmt::format("  {:<{}}  # {}", next.command, width, next.does));
}

}  // namespace megatrain
