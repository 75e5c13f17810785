// Shows what the trainer sees: the first sequences of a run as text, with trained tokens and documents marked.
#include "megatrain/cli/verbs.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/escape.h"
#include "megatrain/base/log.h"
#include "megatrain/cli/config_argument.h"
#include "megatrain/config/arguments.h"
#include "megatrain/data/open_data.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/model_source.h"
#include "megatrain/ops/cross_entropy.h"

namespace megatrain {

namespace {

// How trained text is distinguished from the rest.
struct Marks {
  std::string trained, other, end;
};
const Marks kColours{"\x1b[32m", "\x1b[2m", "\x1b[0m"};
const Marks kBrackets{"\u27e6", "", "\u27e7"};

struct Document {
  std::span<const int32_t> tokens;
  std::vector<bool> trained;  // per token: whether it is the label of the position before
  std::string place;          // empty: unknown, or padding
  bool padding = false;
};

std::vector<Document> documents_of(const MicroBatch& micro, int64_t begin, int64_t end,
                                   const std::vector<std::string>& places, bool samples) {
  std::vector<Document> documents;
  for (size_t d = 0; d + 1 < micro.document_begin.size(); ++d) {
    const int64_t first = micro.document_begin[d], last = micro.document_begin[d + 1];
    if (first < begin || first >= end) continue;
    Document document{.tokens = std::span(micro.tokens).subspan(first, last - first)};
    document.trained.push_back(false);
    for (int64_t t = first; t + 1 < last; ++t) document.trained.push_back(micro.labels[t] != kIgnoreLabel);
    if (documents.size() < places.size()) document.place = places[documents.size()];
    document.padding = samples && documents.size() >= places.size();
    documents.push_back(std::move(document));
  }
  return documents;
}

std::string text_of(const Document& document, const Tokenizer* tokenizer, const Marks& marks) {
  std::string text;
  std::optional<StreamDecoder> decoder;
  if (tokenizer) decoder.emplace(*tokenizer, false);
  bool trained = false;
  text += marks.other;
  for (size_t t = 0; t < document.tokens.size(); ++t) {
    if (document.trained[t] != trained) {
      if (trained || !marks.other.empty()) text += marks.end;
      trained = document.trained[t];
      text += trained ? marks.trained : marks.other;
    }
    text += decoder ? escape_controls(decoder->add(document.tokens[t]))
                    : fmt::format("{}{}", t ? " " : "", document.tokens[t]);
  }
  if (decoder) text += escape_controls(decoder->finish());
  if (trained || !marks.other.empty()) text += marks.end;
  return text;
}

nlohmann::ordered_json to_json(const Document& document, const Tokenizer* tokenizer) {
  nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
  for (size_t t = 0; t < document.tokens.size(); ++t) {
    nlohmann::ordered_json token = {{"id", document.tokens[t]}, {"trained", bool(document.trained[t])}};
    if (tokenizer) token["token"] = tokenizer->token_of(document.tokens[t]);
    tokens.push_back(std::move(token));
  }
  return {{"place", document.place}, {"padding", document.padding}, {"tokens", std::move(tokens)}};
}

std::optional<ModelText> text_for_raw(const TrainConfig& config, const std::string& model_directory) {
  const std::string& path = config.data.tokenizer.empty() ? model_directory : config.data.tokenizer;
  std::error_code none;
  if (path.empty() || !std::filesystem::exists(path + "/tokenizer.json", none)) return std::nullopt;
  return ModelText::load(path);
}

}  // namespace

int verb_inspect_data(const Arguments& arguments) {
  const TrainConfig config = load_config_argument(arguments, {.steps = false, .idle = true});
  const int64_t count = arguments.integer("-n").value_or(3);
  const std::string color = arguments.option("--color").value_or("auto");
  if (color != "auto" && color != "always" && color != "never")
    fail_config(fmt::format("--color is '{}', expected auto, always or never", color));
  const bool coloured = color == "always" || (color == "auto" && is_coloured(STDOUT_FILENO));

  const ModelSource source = read_model_source(config);
  RunData data = open_data(config, source);
  if (data.train_samples) data.train_samples->pad_sequences();  // so that each sequence has a place of its own
  if (!data.text) data.text = text_for_raw(config, source.directory);
  const Tokenizer* tokenizer = data.text ? &data.text->tokenizer : nullptr;
  const Marks& marks = coloured ? kColours : kBrackets;
  nlohmann::ordered_json sequences = nlohmann::ordered_json::array();
  Batch batch;
  for (int64_t index = 0; index < count; ++index) {
    if (data.train_samples && data.train_samples->is_past_end(index)) break;
    if (index % config.batch == 0) data.train->load(index / config.batch, batch);
    const int64_t in_step = index % config.batch, begin = in_step % config.micro_batch * config.seq_len;
    std::vector<std::string> places;
    if (data.train_samples) {
      for (const SamplePiece& piece : data.train_samples->sequence(index)) {
        const SamplePlace place = data.train_samples->place(piece.sample);
        places.push_back(fmt::format("{}:{}", place.file, place.line));
      }
    }
    const auto documents = documents_of(batch.micro_batches[in_step / config.micro_batch], begin,
                                        begin + config.seq_len, places, data.train_samples != nullptr);
    if (arguments.json()) {
      nlohmann::ordered_json list = nlohmann::ordered_json::array();
      for (const Document& document : documents) list.push_back(to_json(document, tokenizer));
      sequences.push_back({{"sequence", index}, {"documents", std::move(list)}});
      continue;
    }
    fmt::print("\u2550\u2550 sequence {} of {} tokens\n", index, config.seq_len);
    for (const Document& document : documents) {
      const int64_t trained = std::count(document.trained.begin(), document.trained.end(), true);
      if (document.padding) {
        fmt::print("\u2500\u2500 {} tokens of padding\n", document.tokens.size());
        continue;
      }
      fmt::print("\u2500\u2500 {}{} tokens, {} trained\n{}\n",
                 document.place.empty() ? "" : escape_line(document.place) + ": ", document.tokens.size(), trained,
                 text_of(document, tokenizer, marks));
    }
  }
  if (arguments.json()) {
    fmt::print("{}\n", json_text(sequences));
  } else {
    fmt::print("{} is trained, the rest is only read\n", coloured ? "green" : "text in \u27e6\u27e7");
  }
  return 0;
}

}  // namespace megatrain
