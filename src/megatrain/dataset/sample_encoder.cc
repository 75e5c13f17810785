#include "megatrain/dataset/sample_encoder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/dataset/keep_answer.h"
#include "megatrain/dataset/sample_json.h"
#include "megatrain/io/file.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSpaces = " \t\r\n";

bool has_no_text(std::string_view text) { return text.find_first_not_of(kSpaces) == std::string_view::npos; }

std::string with_line_feeds(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') out += text[i];
  }
  return out;
}

bool is_assistant(const Json& message) { return message.contains("role") && message["role"] == "assistant"; }

bool says_something(const Json& message) {
  for (const char* const key : {"content", "tool_calls", "reasoning_content", "reasoning", "thinking"}) {
    const auto found = message.find(key);
    if (found == message.end()) continue;
    if (found->is_string() && !has_no_text(found->get_ref<const std::string&>())) return true;
    if (found->is_array() && !found->empty()) return true;
  }
  return false;
}

// "weight" is 0 or 1, as in OpenAI's format; partial weights do not exist.
bool has_no_weight(const Json& message) {
  const auto weight = message.find("weight");
  return weight != message.end() && weight->is_number() && weight->get<double>() == 0;
}

void check_weight(const Json& message, size_t index) {
  const auto weight = message.find("weight");
  if (weight == message.end() || weight->is_null()) return;
  if (!weight->is_number() || (weight->get<double>() != 0 && weight->get<double>() != 1))
    fail_input(fmt::format("message {} has the weight {}, expected 0 (not trained) or 1", index + 1,
                           printable(weight->dump(-1, ' ', false, Json::error_handler_t::replace))));
}

// Templates leave out the reasoning of earlier answers. That of the last one should be there, at least its first line.
bool leaves_out_reasoning(const RenderedChat& chat, const Json& messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    if (!is_assistant(messages[i])) continue;
    for (const char* const key : kReasoningKeys) {
      const auto found = messages[i].find(key);
      if (found == messages[i].end() || found->is_null()) continue;
      if (!found->is_string() || has_no_text(found->get_ref<const std::string&>())) return false;
      std::string_view line = found->get_ref<const std::string&>();
      line.remove_prefix(line.find_first_not_of(kSpaces));
      line = line.substr(0, line.find('\n'));
      return chat.said[i].find(line.substr(0, line.find_last_not_of(kSpaces) + 1)) == std::string::npos;
    }
    return false;
  }
  return false;
}

// The token and the span share a byte, or the token has no bytes and is inside the span.
bool meets(const ByteRange& token, const TrainedSpan& span) {
  return token.begin < span.end && std::max(token.end, token.begin + 1) > span.begin;
}

void append(const Encoding& encoding, const std::vector<TrainedSpan>& spans, std::vector<uint32_t>& entries) {
  size_t next = 0;  // earlier spans end before the token
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const ByteRange& range = encoding.ranges[i];
    while (next < spans.size() && spans[next].end <= range.begin) ++next;
    const bool trained = next < spans.size() && meets(range, spans[next]);
    entries.push_back(static_cast<uint32_t>(encoding.ids[i]) | (trained ? kTrainedBit : 0));
  }
}

std::string without_period(std::string text) {
  if (text.ends_with('.') && !text.ends_with("..")) text.pop_back();
  return text;
}

}  // namespace

SampleEncoder::SampleEncoder(const TextCoder& model, const TokenizeOptions& options, std::optional<SampleForm> form)
    : model_(model), options_(options), form_(std::move(form)) {
  if (model.chat_template == nullptr) return;
  for (const std::string& token : model.chat_template->written_tokens()) {
    if (model.tokenizer.encode(token, false) != std::vector<int32_t>{model.tokenizer.id_of(token)}) {
      unknown_tokens_.push_back(token);
    }
  }
}

EncodedBlock SampleEncoder::encode(const SampleBlock& block) const {
  EncodedBlock out;
  for (const RawSample& raw : block.samples) {
    const size_t begin = out.entries.size();
    try {
      const int32_t kind = encode_one(block.good_text(raw), raw, out);
      if (out.entries.size() == begin) fail_input("the tokenizer makes no tokens from it");
      out.samples.push_back(
          {.end = static_cast<int64_t>(out.entries.size()), .line = raw.line, .file = raw.file, .kind = kind});
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_input) throw;
      out.entries.resize(begin);
      out.bad.push_back({.file = raw.file, .line = raw.line, .what = without_period(error.what())});
    }
  }
  out.trained_tokens =
      std::count_if(out.entries.begin(), out.entries.end(), [](uint32_t entry) { return (entry & kTrainedBit) != 0; });
  return out;
}

int32_t SampleEncoder::encode_one(std::string_view text, const RawSample& raw, EncodedBlock& out) const {
  std::vector<uint32_t>& entries = out.entries;
  if (!raw.json) {
    if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
      fail_input(fmt::format("byte {} of the file is NUL, which text cannot contain; remove the file if it is not text",
                             raw.offset + static_cast<int64_t>(nul)));
    }
    encode_document(text.find('\r') == std::string_view::npos ? text : with_line_feeds(text), entries);
    return SampleStore::kDocument;
  }
  Sample sample = form_->read(parse_sample_json(text), model_.chat_template != nullptr);
  switch (sample.kind) {
    case Sample::Kind::document: encode_document(sample.text, entries); return SampleStore::kDocument;
    case Sample::Kind::continuation: encode_continuation(sample, entries); return 0;
    case Sample::Kind::conversation: return encode_conversation(std::move(sample), out);
  }
  return 0;
}

void SampleEncoder::encode_document(std::string_view text, std::vector<uint32_t>& entries) const {
  const std::vector<int32_t> ids = model_.tokenizer.encode(text, true);
  for (const int32_t id : ids) entries.push_back(static_cast<uint32_t>(id) | kTrainedBit);
  if (model_.eos >= 0 && (ids.empty() || ids.back() != model_.eos)) {
    entries.push_back(static_cast<uint32_t>(model_.eos) | kTrainedBit);
  }
}

void SampleEncoder::encode_continuation(const Sample& sample, std::vector<uint32_t>& entries) const {
  const Encoding encoding = model_.tokenizer.encode_with_ranges(sample.text, true);
  const bool all = options_.train_on == TrainOn::all;
  append(encoding, {{.begin = all ? 0 : sample.answer, .end = sample.text.size()}}, entries);
  if (model_.eos >= 0 && (encoding.ids.empty() || encoding.ids.back() != model_.eos)) {
    entries.push_back(static_cast<uint32_t>(model_.eos));
  }
  if (!entries.empty()) entries.back() |= kTrainedBit;
}

// Checks, before the template is rendered, that there is something to learn from the conversation.
void SampleEncoder::check_answers(const Sample& sample) const {
  for (size_t i = 0; i < sample.messages.size(); ++i) check_weight(sample.messages[i], i);
  if (options_.train_on == TrainOn::all) return;
  const Json* last = nullptr;
  bool any = false;
  for (const Json& message : sample.messages) {
    if (!is_assistant(message)) continue;
    last = &message;
    any = any || (says_something(message) && !has_no_weight(message));
  }
  if (last == nullptr) fail_input("the conversation has no assistant message, so nothing in it is trained");
  if (options_.train_on == TrainOn::last) any = says_something(*last) && !has_no_weight(*last);
  if (any) return;
  fail_input(options_.train_on == TrainOn::last
                 ? "the last assistant message is empty or has the weight 0, so nothing in the conversation is trained"
                 : "every assistant message is empty or has the weight 0, so nothing in the conversation is trained");
}

// Checks that every trained answer is in the text as intended. Some templates leave out what they do not know (tool
// calls, content in parts), or print it as Python does.
void SampleEncoder::check_written(const RenderedChat& chat, const Sample& sample) const {
  if (options_.train_on == TrainOn::all) return;
  size_t first = 0;
  for (size_t i = 0; options_.train_on == TrainOn::last && i < sample.messages.size(); ++i) {
    if (is_assistant(sample.messages[i])) first = i;
  }
  for (size_t i = first; i < sample.messages.size(); ++i) {
    const Json& message = sample.messages[i];
    if (!is_assistant(message) || has_no_weight(message)) continue;
    const std::string& said = chat.said[i];
    if (said.empty() && says_something(message))
      fail_input(
          fmt::format("the chat template writes nothing of message {}, an assistant message; use a template that "
                      "writes its content and its tool calls, or leave the sample out",
                      i + 1));
    const Json content = message.contains("content") ? message["content"] : Json("");
    const std::string given = message.dump(-1, ' ', false, Json::error_handler_t::replace);
    const auto prints = [&](const char* python) {
      return said.find(python) != std::string::npos && given.find(python) == std::string::npos;
    };
    if ((content.is_array() && prints("'type': ")) || (content.is_null() && prints("None")))
      fail_input(fmt::format("the chat template writes the content of message {} as Python prints {}; give it as text",
                             i + 1, content.is_null() ? "null (None)" : "a list"));
  }
}

void SampleEncoder::check_tokens(const RenderedChat& chat, const Sample& sample) const {
  for (const std::string& token : unknown_tokens_) {
    if (chat.text.find(token) == std::string::npos) continue;
    if (sample.messages.dump(-1, ' ', false, Json::error_handler_t::replace).find(token) != std::string::npos) continue;
    fail_input(
        fmt::format("the chat template writes {}, which the tokenizer does not have as one token; use the template and "
                    "the tokenizer of the same model, or add the token to tokenizer.json",
                    printable(token)));
  }
}

RenderedChat SampleEncoder::render(const Json& messages, const Json& tools) const {
  try {
    return model_.chat_template->render(
        {.messages = messages, .tools = tools, .variables = options_.variables, .now = options_.date});
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
    fail_input(fmt::format("the chat template refuses the conversation: {}", without_period(error.what())));
  }
}

// Applies data.overlong: keep_answer to a conversation that is too long. One whose last question and answer are too
// long stays as it is; whoever makes sequences leaves it out.
int32_t SampleEncoder::shorten(Sample& sample, RenderedChat& chat, Encoding& encoding) const {
  const auto fits = [&](const Json& messages) {
    try {
      const RenderedChat part = render(messages, sample.tools);
      return std::ssize(model_.tokenizer.encode(part.text, false)) <= options_.keep_answer_within;
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_input) throw;
      return false;  // the template refuses this part
    }
  };
  KeptAnswer kept = keep_answer(sample.messages, fits);
  if (kept.messages.empty()) return 0;
  sample.messages = std::move(kept.messages);
  chat = render(sample.messages, sample.tools);
  encoding = model_.tokenizer.encode_with_ranges(chat.text, false);
  int32_t kind = 0;
  if (kept.lost_turns) kind |= SampleStore::kLostTurns;
  if (kept.shortened_system) kind |= SampleStore::kShortenedSystem;
  return kind;
}

int32_t SampleEncoder::encode_conversation(Sample sample, EncodedBlock& out) const {
  std::vector<uint32_t>& entries = out.entries;
  check_answers(sample);
  RenderedChat chat = render(sample.messages, sample.tools);
  Encoding encoding = model_.tokenizer.encode_with_ranges(chat.text, false);
  const bool too_long = options_.keep_answer_within > 0 && std::ssize(encoding.ids) > options_.keep_answer_within;
  const int32_t kind = too_long ? shorten(sample, chat, encoding) : 0;
  check_tokens(chat, sample);
  check_written(chat, sample);
  std::vector<TrainedSpan>& spans = chat.trained;
  if (options_.train_on == TrainOn::all) {
    spans = {{.begin = 0, .end = chat.text.size()}};
  } else {
    int32_t last = -1;
    for (const TrainedSpan& span : spans) last = std::max(last, span.message);
    std::erase_if(spans, [&](const TrainedSpan& span) {
      if (options_.train_on == TrainOn::last && span.message != last) return true;
      return span.message >= 0 && has_no_weight(sample.messages[static_cast<size_t>(span.message)]);
    });
  }
  const size_t begin = entries.size();
  append(encoding, spans, entries);
  // The first token is never a label.
  for (size_t i = begin + 1; i < entries.size(); ++i) {
    if ((entries[i] & kTrainedBit) == 0) continue;
    out.notes.add({.endless = chat.ends ? 0 : 1,
                   .guessed = chat.sure || options_.train_on == TrainOn::all ? 0 : 1,
                   .unreasoned = leaves_out_reasoning(chat, sample.messages) ? 1 : 0});
    return kind;
  }
  if (kind != 0) return kind;  // the messages that are left have the weight 0: left out where sequences are made
  fail_input(spans.empty() ? "the chat template writes no assistant text, so nothing is trained"
                           : "the conversation has no trainable token");
}

}  // namespace megatrain
