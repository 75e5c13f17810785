#include "megatrain/data/sample_data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/dataset/shorten.h"
#include "megatrain/io/xxh3.h"
#include "megatrain/ops/cross_entropy.h"

namespace megatrain {
namespace {

// Purposes of random numbers.
constexpr uint64_t kOrderOfSamples = 0x73616d706c6573, kOrderOfSequences = 0x7365717565, kPartOfSet = 0x70617274;

// How much padding follows the samples of a micro-batch. It makes the number of tokens one of eight between a power of
// two and the next, because libraries choose their kernels by shape.
int64_t rest_of(int64_t tokens, const SampleDataOptions& options) {
  constexpr int64_t kLeast = 16;
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max(tokens, kLeast))));
  const int64_t all = std::max(kLeast, round_up(tokens, std::max(kLeast, power / 8)));
  return std::min(all, options.micro_batch * options.seq_len) - tokens;
}

}  // namespace

SampleData::SampleData(std::vector<SampleSet> sets, const SampleDataOptions& options)
    : options_(options), sets_(std::move(sets)), base_{0}, pieces_(sets_.size()), first_{0} {
  for (size_t set = 0; set < sets_.size(); ++set) {
    base_.push_back(base_.back() + sets_[set].store->samples());
    cut(set);
  }
  const int64_t pieces = std::accumulate(pieces_.begin(), pieces_.end(), int64_t{0},
                                         [](int64_t sum, const auto& list) { return sum + std::ssize(list); });
  if (pieces == 0) fail_empty();
  find_fingerprint();

  const Epoch& start = epoch(0);
  counts_.sequences = start.packing.sequences();
  for (const SamplePiece& piece : start.packing.pieces) counts_.epoch_tokens += piece.length;
  if (options_.epochs > 0 && options_.short_epochs) {
    // As in transformers: the ceiling of the product, computed in doubles.
    steps_ = static_cast<int64_t>(std::ceil(options_.epochs * static_cast<double>(epoch_steps())));
    if (options_.whole_steps) steps_ = filled_steps();
    end_ = steps_ * options_.batch;
  } else if (options_.epochs > 0) {
    const int64_t whole = static_cast<int64_t>(std::floor(options_.epochs));
    const double rest = options_.epochs - static_cast<double>(whole);
    for (int64_t i = 0; i < whole; ++i) end_ += epoch(i).packing.sequences();
    if (rest > 0)
      end_ += static_cast<int64_t>(std::ceil(rest * static_cast<double>(epoch(whole).packing.sequences()) - 1e-9));
    steps_ = ceil_div(end_, options_.batch);
  }
}

void SampleData::fail_empty() const {
  for (const SampleSet& set : sets_) {
    for (const int64_t sample : set.samples) {
      const int64_t length = set.store->length(sample);
      if (length <= options_.seq_len) continue;
      const SamplePlace place = set.store->place(sample);
      const bool cut = options_.overlong == Overlong::truncate || options_.overlong == Overlong::by_turn;
      fail_input(fmt::format(
          "nothing is left to train on: {} of {} dropped; the first that is too long is {}:{} with {} tokens, but {} "
          "is {}; raise it (the longest has {} tokens){}",
          counts_.dropped, counted(counts_.samples, "sample"), place.file, place.line, length,
          options_.names("seq_len"), options_.seq_len, counts_.longest,
          cut ? ": the part that is kept has no answer"
              : fmt::format(", or give {} or by_turn", options_.names.setting("data.overlong", "truncate"))));
    }
  }
  if (counts_.samples == 0) fail_input("the datasets have no samples to train on; give files that have some");
  fail_input(fmt::format("nothing is left to train on: {} of {} have no trained tokens; {} trains every token",
                         counts_.dropped, counted(counts_.samples, "sample"),
                         options_.names.setting("data.train_on", "all")));
}

int64_t SampleData::epoch_steps() const { return ceil_div(counts_.sequences, options_.batch); }

// Axolotl's step count. Without packing: the samples of all epochs divided by the batch, rounded up. With packing: the
// full steps of an epoch (at least one) times the epochs, rounded down. The last epoch may end before its last step.
int64_t SampleData::filled_steps() const {
  const auto sequences = static_cast<double>(counts_.sequences), batch = static_cast<double>(options_.batch);
  if (!options_.packing) return static_cast<int64_t>(std::ceil(sequences * options_.epochs / batch));
  const double full = std::max(1.0, std::floor(sequences / batch));
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(full * options_.epochs)));
}

// Cuts the set's samples into pieces of at most a sequence: a document into several, a conversation into one.
void SampleData::cut(size_t set) {
  const SampleStore& store = *sets_[set].store;
  const int64_t most = options_.seq_len;
  std::vector<uint32_t> room;
  const auto keep = [&](int64_t sample, int64_t begin, int64_t length) {
    const SamplePiece piece{base_[set] + sample, static_cast<int32_t>(begin), static_cast<int32_t>(length)};
    int64_t trained = length - 1;  // for a document, which need not be read for this
    if (!store.is_text(sample)) {
      const auto tokens = entries(piece, room);
      trained = std::count_if(tokens.begin() + 1, tokens.end(), [](uint32_t e) { return e & kTrainedBit; });
    }
    counts_.trained += trained;
    if (trained > 0) pieces_[set].push_back(piece);
    return trained > 0;
  };
  for (const int64_t sample : sets_[set].samples) {
    const int64_t length = store.length(sample);
    ++counts_.samples;
    counts_.tokens += length;
    counts_.longest = std::max(counts_.longest, length);
    for (const uint32_t entry : options_.check_ids ? store.entries(sample) : std::span<const uint32_t>()) {
      if ((entry & kTokenMask) >= static_cast<uint64_t>(options_.vocab)) {
        const SamplePlace place = store.place(sample);
        fail_input(
            fmt::format("{}:{}: has token id {}, but the model's vocabulary has {} ids; name the model's own tokenizer "
                        "in {}, or correct vocab_size in the model's config.json",
                        place.file, place.line, entry & kTokenMask, options_.vocab, options_.names("data.tokenizer")));
      }
    }
    if (store.is_text(sample)) {
      for (int64_t begin = 0; begin < length; begin += most) keep(sample, begin, std::min(most, length - begin));
      continue;
    }
    const bool refused = length > most && options_.overlong == Overlong::error;
    if (refused && counts_.overlong++ >= options_.tolerated) {
      const SamplePlace place = store.place(sample);
      fail_input(
          fmt::format("{}:{}: this conversation has {} tokens, more than {}, which is {}; raise it, or give {} (its "
                      "first {} tokens are used), by_turn (each turn is cut), keep_answer (its oldest turns are left "
                      "out) or drop (it is dropped)",
                      place.file, place.line, length, options_.names("seq_len"), most,
                      options_.names.setting("data.overlong", "truncate"), most));
    }
    const bool cut = options_.overlong == Overlong::truncate || options_.overlong == Overlong::by_turn;
    const bool lost_turns = store.lost_turns(sample), lost_system = store.has_shortened_system(sample);
    counts_.truncated += (length > most && cut) || lost_turns || lost_system;
    counts_.dropped_turns += lost_turns;
    counts_.truncated_system += lost_system;
    const bool leaves_out = options_.overlong == Overlong::drop || options_.overlong == Overlong::keep_answer;
    const bool drop = length > most && leaves_out;
    counts_.too_long += refused || drop;
    if (refused || drop || !keep(sample, 0, std::min(most, length))) ++counts_.dropped;
  }
}

void SampleData::find_fingerprint() {
  std::string all = fmt::format("{} {} {} {} {}", options_.seq_len, options_.packing, options_.shuffle,
                                static_cast<int>(options_.overlong), options_.seed);
  for (const SampleSet& set : sets_) {
    all += fmt::format(" {} {} {}", set.store->fingerprint(), set.weight, set.samples.size());
    all += xxh3_128(set.samples.data(), set.samples.size() * sizeof(int64_t));
  }
  if (options_.short_epochs) all += " short epochs";
  if (options_.recent) all += " recent";
  if (!options_.packing) all += " without padding";
  fingerprint_ = xxh3_128(all.data(), all.size());
}

std::vector<SamplePiece> SampleData::pieces_of_epoch(int64_t number) const {
  std::vector<SamplePiece> all;
  for (size_t set = 0; set < sets_.size(); ++set) {
    const std::vector<SamplePiece>& pieces = pieces_[set];
    const double weight = sets_[set].weight;
    const int64_t times = static_cast<int64_t>(std::floor(weight));
    for (int64_t i = 0; i < times; ++i) all.insert(all.end(), pieces.begin(), pieces.end());
    const double rest = weight - static_cast<double>(times);
    const int64_t part = std::llround(rest * static_cast<double>(pieces.size()));
    if (part == 0) continue;
    std::vector<int64_t> chosen = shuffled(std::ssize(pieces), options_.seed + set, kPartOfSet, number);
    chosen.resize(part);
    std::sort(chosen.begin(), chosen.end());
    for (const int64_t i : chosen) all.push_back(pieces[i]);
  }
  if (!options_.shuffle) return all;
  std::vector<SamplePiece> mixed;
  mixed.reserve(all.size());
  for (const int64_t i : shuffled(std::ssize(all), options_.seed, kOrderOfSamples, number)) mixed.push_back(all[i]);
  return mixed;
}

const SampleData::Epoch& SampleData::epoch(int64_t number) {
  if (current_.number == number) return current_;
  const PackingOrder order = !options_.packing  ? PackingOrder::one_each
                             : options_.shuffle ? PackingOrder::longest_first
                                                : PackingOrder::as_given;
  current_.packing = pack(pieces_of_epoch(number), options_.seq_len, order);
  const int64_t sequences = current_.packing.sequences();
  if (sequences == 0) fail_input(fmt::format("epoch {} has no samples; raise the weights of the datasets", number + 1));
  if (options_.shuffle) {
    current_.order = shuffled(sequences, options_.seed, kOrderOfSequences, number);
  } else {
    current_.order.resize(sequences);
    std::iota(current_.order.begin(), current_.order.end(), 0);
  }
  current_.number = number;
  const int64_t taken = options_.short_epochs ? round_up(sequences, options_.batch) : sequences;
  if (number + 1 == std::ssize(first_)) first_.push_back(first_.back() + taken);
  return current_;
}

std::vector<SamplePiece> SampleData::sequence(int64_t index) {
  if (is_past_end(index)) return {};
  while (first_.back() <= index) epoch(std::ssize(first_) - 1);
  const auto next = std::upper_bound(first_.begin(), first_.end(), index);
  const int64_t number = next - first_.begin() - 1;
  const Epoch& in = epoch(number);
  const int64_t place = index - first_[number];
  if (place >= in.packing.sequences()) return {};  // padding of the epoch's last step
  const auto pieces = in.packing.sequence(in.order[place]);
  return {pieces.begin(), pieces.end()};
}

double SampleData::epochs_done(int64_t steps) const {
  int64_t index = steps * options_.batch;
  if (end_ > 0) index = std::min(index, end_);
  const auto next = std::upper_bound(first_.begin(), first_.end(), index);
  const auto number = static_cast<double>(next - first_.begin() - 1);
  if (next == first_.end()) return number;
  const int64_t begin = *std::prev(next);
  return number + static_cast<double>(index - begin) / static_cast<double>(*next - begin);
}

size_t SampleData::set_of(int64_t sample) const {
  return static_cast<size_t>(std::upper_bound(base_.begin(), base_.end(), sample) - base_.begin()) - 1;
}

bool SampleData::is_shortened(const SampleStore& store, int64_t sample) const {
  return options_.overlong == Overlong::by_turn && !store.is_text(sample) && store.length(sample) > options_.seq_len;
}

std::span<const uint32_t> SampleData::entries(const SamplePiece& piece, std::vector<uint32_t>& room) const {
  const size_t set = set_of(piece.sample);
  const SampleStore& store = *sets_[set].store;
  const int64_t sample = piece.sample - base_[set];
  std::span<const uint32_t> found = store.entries(sample);
  if (is_shortened(store, sample)) {
    shorten_turns(found, options_.seq_len, options_.recent, room);
    found = room;
  }
  if (piece.begin + int64_t{piece.length} > std::ssize(found))
    store.fail_damaged(fmt::format("sample {} is shorter than it was", sample));
  return found.subspan(piece.begin, piece.length);
}

SamplePlace SampleData::place(int64_t sample) const {
  const size_t set = set_of(sample);
  return sets_[set].store->place(sample - base_[set]);
}

std::string SampleData::place(int64_t step, int64_t micro_batch, int64_t token) {
  const int64_t first = step * options_.batch + micro_batch * options_.micro_batch;
  int64_t end = 0;
  for (int64_t i = 0; i < options_.micro_batch; ++i) {
    if (is_padded()) end = i * options_.seq_len;
    for (const SamplePiece& piece : sequence(first + i)) {
      if (token < end) return "";  // padding of the sequence before
      end += piece.length;
      if (token >= end) continue;
      const SamplePlace at = place(piece.sample);
      return fmt::format("{}:{}", at.file, at.line);
    }
  }
  return "";
}

// Ids were checked when the data was opened, or the tokenizer cannot make others: an invalid id now means damage.
void SampleData::check_ids(const SamplePiece& piece, std::span<const uint32_t> tokens) const {
  uint32_t largest = 0;
  for (const uint32_t entry : tokens) largest = std::max(largest, entry & kTokenMask);
  if (static_cast<int64_t>(largest) < options_.vocab) return;
  const size_t set = set_of(piece.sample);
  sets_[set].store->fail_damaged(fmt::format("sample {} has token id {}, but the model's vocabulary has {} ids",
                                             piece.sample - base_[set], largest, options_.vocab));
}

void SampleData::append(const std::vector<SamplePiece>& pieces, MicroBatch& into) const {
  std::vector<uint32_t> shortened;
  for (const SamplePiece& piece : pieces) {
    into.document_begin.push_back(static_cast<int32_t>(into.tokens.size()));
    const auto tokens = entries(piece, shortened);
    check_ids(piece, tokens);
    for (size_t t = 0; t < tokens.size(); ++t) {
      const bool trained = t + 1 < tokens.size() && (tokens[t + 1] & kTrainedBit);
      into.tokens.push_back(static_cast<int32_t>(tokens[t] & kTokenMask));
      into.positions.push_back(static_cast<int32_t>(t));
      into.labels.push_back(trained ? static_cast<int32_t>(tokens[t + 1] & kTokenMask) : kIgnoreLabel);
      into.trained += trained;
    }
  }
}

void SampleData::append_padding(int64_t count, MicroBatch& into) const {
  for (int64_t t = 0; t < count; ++t) {
    const int64_t position = t % options_.seq_len;  // no document is longer
    if (position == 0) into.document_begin.push_back(static_cast<int32_t>(into.tokens.size()));
    into.tokens.push_back(options_.padding);
    into.labels.push_back(kIgnoreLabel);
    into.positions.push_back(static_cast<int32_t>(position));
  }
}

void SampleData::load(int64_t step, Batch& into) {
  into.micro_batches.resize(options_.batch / options_.micro_batch);
  into.tokens = into.trained = 0;
  int64_t index = step * options_.batch;
  for (MicroBatch& micro : into.micro_batches) {
    micro.clear();
    for (int64_t i = 1; i <= options_.micro_batch; ++i) {
      append(sequence(index++), micro);
      if (is_padded()) append_padding(i * options_.seq_len - std::ssize(micro.tokens), micro);
    }
    if (!is_padded()) append_padding(rest_of(std::ssize(micro.tokens), options_), micro);
    micro.close();
    into.tokens += static_cast<int64_t>(micro.tokens.size());
    into.trained += micro.trained;
  }
  for (const SampleSet& set : sets_) set.store->check_whole();
  ensure(into.trained > 0, "a step of samples has something to train");
}

}  // namespace megatrain
