#include "megatrain/data/token_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/ops/cross_entropy.h"

namespace megatrain {
namespace {

constexpr int64_t kScanBytes = kGiB;       // smaller files are checked completely before the first step
constexpr int64_t kScanBlock = 64 * 1024;  // elements examined at once

// First index in [begin, end) whose value `bad` refuses, or -1. `suspect` examines a whole block in one vectorised
// pass.
template <class T, class Suspect, class Bad>
int64_t find_bad(std::span<const T> values, int64_t begin, int64_t end, const Suspect& suspect, const Bad& bad) {
  for (int64_t block = begin; block < end; block += kScanBlock) {
    const int64_t stop = std::min(end, block + kScanBlock);
    if (!suspect(values.subspan(block, stop - block))) continue;
    for (int64_t i = block; i < stop; ++i)
      if (bad(values[i])) return i;
  }
  return -1;
}

template <class T>
int64_t find_large(std::span<const T> ids, int64_t begin, int64_t end, int64_t vocab) {
  const auto bad = [vocab](T id) { return static_cast<int64_t>(id) >= vocab; };
  const auto suspect = [&](std::span<const T> block) {
    T largest = 0;
    for (const T id : block) largest = std::max(largest, id);
    return bad(largest);
  };
  return find_bad(ids, begin, end, suspect, bad);
}

std::optional<MappedFile> open_file(const std::string& path, const char* key) {
  if (path.empty()) return std::nullopt;
  try {
    return MappedFile(path);
  } catch (const Error& e) {
    fail(e.code(), fmt::format("{}: {}", key, e.what()));
  }
}

template <class T>
std::span<const T> elements(const MappedFile& file, const char* key, const char* type) {
  const int64_t size = static_cast<int64_t>(sizeof(T));
  if (file.bytes() % size != 0)
    fail_input(
        fmt::format("{} {} has {} bytes, expected a multiple of {} ({}); the file is truncated or has another type",
                    key, file.path(), file.bytes(), size, type));
  return {reinterpret_cast<const T*>(file.data()), static_cast<size_t>(file.bytes() / size)};
}

// Reports an entry that was valid when the file was opened and is not any more.
[[noreturn]] void fail_changed(const MappedFile& file, const char* key, int64_t entry) {
  file.check_whole();
  fail_io(fmt::format("{} {}: entry {} changed while in use; restore the file", key, file.path(), entry));
}

}  // namespace

TokenData::TokenData(const TrainConfig& config, int64_t vocab)
    : token_file_(open_file(config.data.tokens, "data.tokens")),
      document_file_(open_file(config.data.documents, "data.documents")),
      label_file_(open_file(config.data.labels, "data.labels")),
      order_file_(open_file(config.data.order, "data.order")),
      wide_(config.data.dtype == "uint32"),
      vocab_(vocab),
      seq_len_(config.seq_len),
      batch_(config.batch),
      micro_batch_(config.micro_batch) {
  ensure(token_file_.has_value(), "data.tokens is given");
  if (wide_)
    wide_ids_ = elements<uint32_t>(*token_file_, "data.tokens", "uint32");
  else
    ids_ = elements<uint16_t>(*token_file_, "data.tokens", "uint16");
  tokens_ = static_cast<int64_t>(wide_ ? wide_ids_.size() : ids_.size());
  sequences_ = tokens_ / seq_len_;
  if (sequences_ == 0)
    fail_input(fmt::format(
        "data.tokens {} has {} tokens, expected at least one sequence of seq_len {}; lower seq_len or add data",
        token_file_->path(), tokens_, seq_len_));
  steps_ =
      static_cast<int64_t>(std::ceil(config.epochs * static_cast<double>(sequences_) / static_cast<double>(batch_)));
  if (token_file_->bytes() < kScanBytes) {
    check_tokens(0, tokens_);
    tokens_checked_ = true;
  }
  if (document_file_) {
    documents_ = elements<uint64_t>(*document_file_, "data.documents", "uint64");
    check_documents();
  }
  if (label_file_) {
    labels_ = elements<int32_t>(*label_file_, "data.labels", "int32");
    if (static_cast<int64_t>(labels_.size()) != tokens_)
      fail_input(fmt::format("data.labels {} has {} labels, expected one for each of the {} tokens of {}",
                             label_file_->path(), labels_.size(), tokens_, token_file_->path()));
    if (label_file_->bytes() < kScanBytes) {
      check_labels(0, tokens_);
      labels_checked_ = true;
    }
  }
  if (order_file_) {
    order_ = elements<uint64_t>(*order_file_, "data.order", "uint64");
    check_order(config.batch * config.steps);
  }
}

void TokenData::check_documents() const {
  for (size_t i = 0; i < documents_.size(); ++i) {
    if (documents_[i] >= static_cast<uint64_t>(tokens_))
      fail_input(fmt::format(
          "data.documents {}: entry {} is {}, expected a start below the {} tokens of {}; list starts only, no end",
          document_file_->path(), i, documents_[i], tokens_, token_file_->path()));
    if (i > 0 && documents_[i] <= documents_[i - 1])
      fail_input(fmt::format("data.documents {}: entry {} is {} after {}, expected strictly ascending starts",
                             document_file_->path(), i, documents_[i], documents_[i - 1]));
  }
}

void TokenData::check_order(int64_t needed) const {
  if (static_cast<int64_t>(order_.size()) < needed)
    fail_input(
        fmt::format("data.order {} has {} sequence numbers, expected {} (batch * steps); add numbers or lower steps",
                    order_file_->path(), order_.size(), needed));
  for (size_t i = 0; i < order_.size(); ++i)
    if (order_[i] >= static_cast<uint64_t>(sequences_))
      fail_input(fmt::format("data.order {}: entry {} is sequence {}, but {} holds {} sequences of {} tokens",
                             order_file_->path(), i, order_[i], token_file_->path(), sequences_, seq_len_));
}

void TokenData::check_tokens(int64_t begin, int64_t end) const {
  const int64_t at = wide_ ? find_large(wide_ids_, begin, end, vocab_) : find_large(ids_, begin, end, vocab_);
  if (at >= 0 && tokens_checked_) fail_changed(*token_file_, "data.tokens", at);
  if (at >= 0)
    fail_input(fmt::format(
        "data.tokens {}: token {} has id {}, but the model's vocabulary has {} ids; tokenize with this model's "
        "tokenizer and check data.dtype, or correct vocab_size in the model's config.json",
        token_file_->path(), at, token(at), vocab_));
}

void TokenData::check_labels(int64_t begin, int64_t end) const {
  const auto bad = [this](int32_t label) { return label != kIgnoreLabel && (label < 0 || label >= vocab_); };
  const auto suspect = [&](std::span<const int32_t> block) {
    bool any = false;
    for (const int32_t label : block) any |= bad(label);
    return any;
  };
  const int64_t at = find_bad(labels_, begin, end, suspect, bad);
  if (at >= 0 && labels_checked_) fail_changed(*label_file_, "data.labels", at);
  if (at >= 0)
    fail_input(fmt::format(
        "data.labels {}: label {} is {}, expected {} (not trained) or an id below the model's vocabulary of {}",
        label_file_->path(), at, labels_[at], kIgnoreLabel, vocab_));
}

int64_t TokenData::sequence_at(int64_t index) const {
  if (!order_file_) return index % sequences_;
  ensure(index < static_cast<int64_t>(order_.size()), "a step stays within data.order");
  if (order_[index] >= static_cast<uint64_t>(sequences_)) fail_changed(*order_file_, "data.order", index);
  return static_cast<int64_t>(order_[index]);
}

void TokenData::load(int64_t step, Batch& into) {
  into.micro_batches.resize(batch_ / micro_batch_);
  into.tokens = 0;
  into.trained = 0;
  int64_t index = step * batch_;
  for (MicroBatch& micro : into.micro_batches) {
    micro.clear();
    for (int64_t i = 0; i < micro_batch_; ++i) append_sequence(sequence_at(index++), micro);
    micro.close();
    into.tokens += static_cast<int64_t>(micro.tokens.size());
    into.trained += micro.trained;
  }
  for (const auto* const file : {&token_file_, &document_file_, &label_file_, &order_file_})
    if (*file) (*file)->check_whole();
  if (into.trained == 0)
    fail_input(fmt::format(
        "step {} has no trained tokens among its {}; check data.labels and data.documents for these sequences",
        step + 1, into.tokens));
}

std::string TokenData::place(int64_t step, int64_t micro_batch, int64_t token) {
  const int64_t sequence = sequence_at(step * batch_ + micro_batch * micro_batch_ + token / seq_len_);
  return fmt::format("sequence {} of {}", sequence, token_file_->path());
}

void TokenData::append_sequence(int64_t sequence, MicroBatch& into) const {
  const int64_t begin = sequence * seq_len_, end = begin + seq_len_;
  check_tokens(begin, end);
  if (label_file_) check_labels(begin, end);
  auto next = std::upper_bound(documents_.begin(), documents_.end(), static_cast<uint64_t>(begin));

  const int64_t base = static_cast<int64_t>(into.tokens.size());
  for (int64_t document = begin; document < end;) {
    const uint64_t next_begin = next == documents_.end() ? static_cast<uint64_t>(end) : *next;
    const bool past = next != documents_.end() && *next >= static_cast<uint64_t>(tokens_);
    if (past || next_begin <= static_cast<uint64_t>(document))
      fail_changed(*document_file_, "data.documents", next - documents_.begin());
    const int64_t document_end = static_cast<int64_t>(std::min(static_cast<uint64_t>(end), next_begin));
    into.document_begin.push_back(static_cast<int32_t>(base + document - begin));
    for (int64_t t = document; t < document_end; ++t) {
      int32_t label = kIgnoreLabel;
      if (t + 1 < document_end) label = label_file_ ? labels_[t + 1] : static_cast<int32_t>(token(t + 1));
      into.tokens.push_back(static_cast<int32_t>(token(t)));
      into.positions.push_back(static_cast<int32_t>(t - document));
      into.labels.push_back(label);
      into.trained += label != kIgnoreLabel;
    }
    document = document_end;
    if (next != documents_.end()) ++next;
  }
}

}  // namespace megatrain
