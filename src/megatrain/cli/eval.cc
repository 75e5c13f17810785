#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/cli/loaded_model.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/dataset/dataset.h"
#include "megatrain/dataset/file_kind.h"
#include "megatrain/dataset/json_rows.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/run/run_files.h"
#include "megatrain/train/model_loss.h"

namespace megatrain {

namespace {

using Json = nlohmann::ordered_json;

// A question and its expected answer.
struct EvalRow {
  std::string where;
  int64_t line = 0;
  Json messages;     // the question as a conversation
  std::string text;  // the question as plain text; empty: only a conversation is given
  std::string answer;
};

// `about` is a column whose text is appended to the question on a new line, as in training; nullptr if there is none.
EvalRow pair_of(const JsonRow& row, const char* question, const char* answer, const char* about = nullptr) {
  std::string text = text_field(row, question);
  if (text.empty()) fail_input(fmt::format("{}\"{}\" is empty; expected what to ask", row.where, question));
  if (about != nullptr && row.object.contains(about) && !row.object.at(about).is_null()) {
    const std::string more = text_field(row, about);
    if (!more.empty()) text += "\n" + more;
  }
  return {.where = row.where,
          .line = row.line,
          .messages = Json::array({{{"role", "user"}, {"content", text}}}),
          .text = text,
          .answer = text_field(row, answer)};
}

EvalRow conversation_of(const JsonRow& row) {
  EvalRow asked{.where = row.where, .line = row.line, .messages = messages_field(row)};
  const Json last = asked.messages.back();
  if (last.at("role") != "assistant" || !last.contains("content") || !last.at("content").is_string()) {
    fail_input(
        fmt::format("{}the last message is {}; expected the assistant's answer, {{\"role\": \"assistant\", "
                    "\"content\": \"...\"}}",
                    row.where, printable(json_text(last))));
  }
  asked.answer = last.at("content").get<std::string>();
  asked.messages.erase(asked.messages.size() - 1);
  if (asked.messages.empty())
    fail_input(fmt::format("{}nothing is asked before the answer; expected a user's message", row.where));
  return asked;
}

EvalRow read_row(const JsonRow& row) {
  if (row.object.contains("messages")) return conversation_of(row);
  if (row.object.contains("question")) return pair_of(row, "question", "answer", "context");
  if (row.object.contains("prompt")) return pair_of(row, "prompt", "completion");
  fail_input(
      fmt::format("{}it has neither \"question\" and \"answer\", nor \"prompt\" and \"completion\", nor "
                  "\"messages\"; found {}",
                  row.where, printable(json_text(row.object))));
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// The fraction of questions answered exactly right under greedy decoding, and the first few wrong ones.
Json exact_match(LoadedModel& model, const std::vector<EvalRow>& rows, std::optional<int64_t> max_tokens) {
  constexpr size_t kShown = 5;
  std::vector<Prompt> prompts;
  for (const EvalRow& row : rows) {
    const bool chat = model.text().chat_template || row.text.empty();
    Prompt prompt = chat ? model.chat_prompt(row.messages, row.where) : model.prompt(row.text, row.where);
    const int64_t right = static_cast<int64_t>(model.text().tokenizer.encode(row.answer, false).size());
    prompt.max_tokens = max_tokens.value_or(2 * right + 16);
    prompts.push_back(std::move(prompt));
  }
  Generator& generator = model.generator_for(prompts);
  const double start = now_s();
  const std::vector<Answer> answers = answer(generator, model.text(), prompts, {});
  const double seconds = now_s() - start;
  Json mismatches = Json::array();
  size_t right = 0, tokens = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    tokens += answers[i].ids.size();
    if (trimmed(answers[i].text) == trimmed(rows[i].answer)) {
      ++right;
    } else if (mismatches.size() < kShown) {
      mismatches.push_back({{"line", rows[i].line}, {"expected", rows[i].answer}, {"got", answers[i].text}});
    }
  }
  return {{"exact_match", static_cast<double>(right) / static_cast<double>(rows.size())},
          {"right", right},
          {"count", rows.size()},
          {"mismatches", mismatches},
          {"tokens", tokens},
          {"seconds", seconds},
          {"tokens_per_s", static_cast<double>(tokens) / seconds}};
}

void print_exact_match(const Json& result) {
  fmt::print("exact_match {:.4f} ({} of {})\n", result.at("exact_match").get<double>(),
             result.at("right").get<size_t>(), result.at("count").get<size_t>());
  for (const Json& mismatch : result.at("mismatches")) {
    fmt::print("line {}: expected {}, got {}\n", mismatch.at("line").get<int64_t>(),
               printable(mismatch.at("expected").get<std::string>()), printable(mismatch.at("got").get<std::string>()));
  }
}

// Rows with a question and an answer. Nothing when the file is plain text, for which only a loss can be measured.
std::optional<std::vector<EvalRow>> read_rows(const std::string& path) {
  if (std::filesystem::is_directory(path) || !holds_rows(path)) return std::nullopt;
  std::vector<EvalRow> rows;
  JsonRows file(path);
  while (const auto row = file.next()) {
    if (rows.empty() && row->object.contains("text")) return std::nullopt;
    rows.push_back(read_row(*row));
  }
  return rows;
}

// Rejects --max-tokens when it would have no effect.
void check_max_tokens(const Arguments& arguments, const std::string& file, bool has_rows) {
  if (!arguments.option("--max-tokens")) return;
  constexpr const char* kWhat = "--max-tokens is the length of an answer";
  if (arguments.flag("--loss-only"))
    fail_config(fmt::format("{}, and with --loss-only none is made; leave one of them out", kWhat));
  if (!has_rows) fail_config(fmt::format("{}, and {} is text, which asks nothing; leave it out", kWhat, file));
}

// For a model without a chat template.
[[noreturn]] void refuse_loss_only(const std::string& name, const std::vector<EvalRow>& rows) {
  const bool asks_texts = std::none_of(rows.begin(), rows.end(), [](const EvalRow& row) { return row.text.empty(); });
  fail_input(
      fmt::format("--loss-only has nothing to measure: the loss of answers needs a chat template, and {} has none; add "
                  "its chat_template.jinja{}",
                  name, asks_texts ? ", or leave --loss-only out to count right answers" : ""));
}

// The loss over the answers, or over all of a plain text.
Json loss_of(TrainConfig config, const DatasetChoice& data, std::optional<int64_t> seq_len, int64_t context) {
  constexpr int64_t kSeqLen = 4096, kPassTokens = 8192;
  config.data.eval = {data};
  config.seq_len = seq_len.value_or(std::min(context, kSeqLen));
  config.batch = config.micro_batch = std::max<int64_t>(1, kPassTokens / config.seq_len);
  verify_model_of_run(config.model.path);
  if (!config.model.adapter.empty()) verify_model_of_run(config.model.adapter);
  const ModelLoss loss = measure_loss(config);
  return {{"loss", loss.loss}, {"perplexity", std::exp(loss.loss)}, {"loss_tokens", loss.tokens}};
}

// If every row has a question as text, the format is fixed to "prompt". A "label" column is then ignored like any
// other, instead of being read as a preference.
DatasetChoice dataset_of(const std::string& file, const std::optional<std::vector<EvalRow>>& rows) {
  const bool pairs =
      rows && std::none_of(rows->begin(), rows->end(), [](const EvalRow& row) { return row.text.empty(); });
  DatasetChoice choice{.path = file};
  if (pairs) choice.format = "prompt";
  return choice;
}

}  // namespace

int verb_eval(const Arguments& arguments) {
  if (arguments.plain().size() != 2) {
    fail_config(fmt::format(
        "'megatrain eval' takes a MODEL or RUN and a file of questions or text, {} given; see 'megatrain eval "
        "--help'",
        arguments.plain().empty() ? "nothing was" : fmt::format("{} words were", arguments.plain().size())));
  }
  const std::optional<int64_t> max_tokens = arguments.integer("--max-tokens");
  if (max_tokens && *max_tokens < 1) fail_config(fmt::format("--max-tokens is {}; expected 1 or more", *max_tokens));
  const std::optional<int64_t> seq_len = arguments.integer("--seq-len");
  constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
  if (seq_len && (*seq_len < 2 || *seq_len > kMostTokens)) {
    fail_config(fmt::format("--seq-len is {}; expected 2 to {}", *seq_len, kMostTokens));
  }

  const std::string &name = arguments.plain()[0], &file = arguments.plain()[1];
  const auto rows = read_rows(file);
  check_max_tokens(arguments, file, rows.has_value());
  Json result = Json::object();
  TrainConfig config;
  int64_t context = 0;
  bool has_loss = true;
  {
    LoadedModel model(name, arguments, "eval");
    has_loss = !rows || model.text().chat_template;
    if (!has_loss && arguments.flag("--loss-only")) refuse_loss_only(name, *rows);
    if (rows && !arguments.flag("--loss-only")) result = exact_match(model, *rows, max_tokens);
    context = model.config().max_position;
    config = model.settings();
  }
  if (has_loss) {
    config.data.cache = arguments.option("--data.cache").value_or("");
    result.update(loss_of(config, dataset_of(file, rows), seq_len, context));
  } else {
    log_info("no loss: the loss of answers needs a chat template, and the model has none");
  }
  if (arguments.json()) {
    fmt::print("{}\n", json_text(result));
    return 0;
  }
  if (result.contains("exact_match")) print_exact_match(result);
  if (result.contains("loss"))
    fmt::print("loss {:.4f}, perplexity {:.4g}, on {} tokens\n", result.at("loss").get<double>(),
               result.at("perplexity").get<double>(), result.at("loss_tokens").get<int64_t>());
  return 0;
}

}  // namespace megatrain
