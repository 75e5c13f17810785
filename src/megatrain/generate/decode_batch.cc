#include "megatrain/generate/decode_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

DecodeBatch::DecodeBatch(CachedForward& forward)
    : forward_(forward), places_(static_cast<size_t>(forward.options().max_batch)) {}

void DecodeBatch::check(const GenerationRequest& request) const {
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()), context = forward_.options().max_context;
  if (tokens == 0) fail_input("a prompt has no tokens; give some text to continue");
  if (tokens > context)
    fail_input(fmt::format("a prompt has {} tokens, but only {} fit the context; shorten it", tokens, context));
  for (const int32_t id : request.prompt) {
    if (id < 0 || id >= forward_.model().vocab) {
      fail_input(
          fmt::format("a prompt has token {}, but the model has embeddings for 0 to {}; its tokenizer.json "
                      "belongs to another model",
                      id, forward_.model().vocab - 1));
    }
  }
}

bool DecodeBatch::may_grow(const GenerationRequest& request, size_t tokens) const {
  return tokens < static_cast<size_t>(forward_.options().max_context) &&
         tokens - request.prompt.size() < static_cast<size_t>(std::max<int64_t>(request.max_tokens, 0));
}

bool DecodeBatch::may_grow(const GenerationRequest& request) const { return may_grow(request, request.prompt.size()); }

bool DecodeBatch::has_room() const {
  return std::any_of(places_.begin(), places_.end(), [](const Place& place) { return place.free; });
}

bool DecodeBatch::idle() const {
  return std::all_of(places_.begin(), places_.end(), [](const Place& place) { return place.free; });
}

// How many tokens of the prompt are in the place's cache. The last token of a prompt is always fed, for its logits.
size_t DecodeBatch::kept(const Place& place, const GenerationRequest& request) const {
  const std::vector<int32_t>& prompt = request.prompt;
  if (request.scoring.prompt) return 0;
  if (place.request.adapter != request.adapter) return 0;  // keys and values are those of the adapter
  const size_t above = static_cast<size_t>(forward_.model().rope.long_above());
  // the cached keys have other RoPE angles
  if (above > 0 && (place.ids.size() > above) != (prompt.size() > above)) return 0;
  const size_t most = std::min(place.fed, prompt.size() - 1);
  const auto end = place.ids.begin() + static_cast<std::ptrdiff_t>(most);
  const auto same =
      static_cast<size_t>(std::mismatch(place.ids.begin(), end, prompt.begin()).first - place.ids.begin());
  return same == place.fed || forward_.rewinds() ? same : 0;
}

DecodeBatch::Ticket DecodeBatch::add(GenerationRequest request, const std::set<int32_t>& end_ids) {
  Place* best = nullptr;
  std::pair<int64_t, int64_t> best_score;
  for (Place& place : places_) {
    if (!place.free) continue;
    // Prefer the place with the most of this prompt, then the one with the least of another.
    const std::pair<int64_t, int64_t> score = {request.reuse ? static_cast<int64_t>(kept(place, request)) : 0,
                                               -static_cast<int64_t>(place.fed)};
    if (best && score <= best_score) continue;
    best = &place;
    best_score = score;
  }
  ensure(best != nullptr && has_work(request), "a request finds room and has work");
  best->free = false;
  best->ticket = ++tickets_;
  best->end_ids = &end_ids;
  best->ids = request.prompt;
  best->fed = static_cast<size_t>(best_score.first);
  best->scores.clear();
  best->request = std::move(request);
  reused_tokens_ += best_score.first;
  return best->ticket;
}

void DecodeBatch::drop(Ticket ticket) {
  for (Place& place : places_) {
    if (!place.free && place.ticket == ticket) place.free = true;
  }
}

void DecodeBatch::clear() {
  for (Place& place : places_) place = Place{};
}

int32_t DecodeBatch::choose(Place& place, std::span<const float> logits) const {
  const GenerationRequest& request = place.request;
  if (!request.constraint) return sample(logits, request.sampling, request.sequence, std::ssize(place.ids));
  const int32_t id =
      sample(logits, request.sampling, request.sequence, std::ssize(place.ids), request.constraint->allowed());
  if (!place.end_ids->contains(id)) request.constraint->accept(id);
  return id;
}

DecodeBatch::Token DecodeBatch::grow(Place& place, std::span<const float> logits) {
  Token token{.ticket = place.ticket, .id = -1, .prompt = std::exchange(place.scores, {})};
  const GenerationRequest& request = place.request;
  if (!may_grow(request, place.ids.size())) {  // only its prompt was wanted
    token.last = place.free = true;
    return token;
  }
  try {
    token.id = choose(place, logits);
    if (request.scoring.answer) token.likelihood = likelihood(logits, token.id, request.scoring.top);
    token.is_end = place.end_ids->contains(token.id);
    token.complete = !token.is_end && request.constraint && request.constraint->complete();
  } catch (...) {
    token.failed = std::current_exception();
    token.last = place.free = true;
    return token;
  }
  place.ids.push_back(token.id);
  // Beyond this length RoPE changes the angles of all tokens, so the keys are recomputed.
  if (std::ssize(place.ids) == forward_.model().rope.long_above() + 1) place.fed = 0;
  token.last = place.free = token.is_end || token.complete || !may_grow(request, place.ids.size());
  return token;
}

std::vector<DecodeBatch::Token> DecodeBatch::step() {
  std::set<size_t> adapters;
  for (const Place& place : places_) {
    if (!place.free) adapters.insert(place.request.adapter);
  }
  std::vector<Token> tokens;
  for (const size_t adapter : adapters) pass(adapter, tokens);
  return tokens;
}

// A pass over the places of one adapter.
void DecodeBatch::pass(size_t adapter, std::vector<Token>& tokens) {
  // Sequences that need only their next token go first, so that a long prompt does not delay them.
  std::vector<size_t> turn(places_.size());
  std::iota(turn.begin(), turn.end(), size_t{0});
  std::stable_sort(turn.begin(), turn.end(),
                   [&](size_t a, size_t b) { return places_[a].waiting() == 1 && places_[b].waiting() != 1; });
  std::vector<CachedForward::Feed> feeds;
  std::vector<Row> rows;
  size_t room = static_cast<size_t>(forward_.pass_tokens());
  for (const size_t i : turn) {
    Place& place = places_[i];
    const size_t count = place.request.adapter == adapter ? std::min(place.waiting(), room) : 0;
    if (count == 0) continue;
    room -= count;
    const size_t end = place.fed + count;
    const bool every = place.scores_prompt();
    feeds.push_back({.sequence = static_cast<int64_t>(i),
                     .position = static_cast<int64_t>(place.fed),
                     .ids = std::span(place.ids).subspan(place.fed, count),
                     .logits = every || end == place.ids.size(),
                     .length = static_cast<int64_t>(place.ids.size()),
                     .every = every});
    for (size_t at = every ? place.fed : end - 1; feeds.back().logits && at < end; ++at)
      rows.push_back({.place = &place, .next = at + 1});
    place.fed = end;
  }
  if (feeds.empty()) return;
  const size_t vocab = static_cast<size_t>(forward_.model().vocab);
  forward_.run(feeds, adapter, [&](int64_t first, std::span<const float> logits) {
    const std::span<const Row> chunk = std::span(rows).subspan(static_cast<size_t>(first), logits.size() / vocab);
    score(chunk, logits);
    for (size_t row = 0; row < chunk.size(); ++row) {
      if (chunk[row].next == chunk[row].place->ids.size())
        tokens.push_back(grow(*chunk[row].place, logits.subspan(row * vocab, vocab)));
    }
  });
}

// Adds the likelihoods of prompts' tokens that these logits (rows, V) predict. Nothing here depends on the number of
// threads.
void DecodeBatch::score(std::span<const Row> rows, std::span<const float> logits) {
  const size_t vocab = static_cast<size_t>(forward_.model().vocab);
  const auto scored = [](const Row& row) { return row.next < row.place->ids.size(); };
  if (std::ranges::none_of(rows, scored)) return;
  if (!team_) team_ = std::make_unique<ThreadTeam>(team_size(0));
  std::vector<Likelihood> found(rows.size());
  std::vector<std::exception_ptr> failed(rows.size());
  team_->parallel_for(std::ssize(rows), [&](int64_t index) {
    const auto i = static_cast<size_t>(index);
    if (!scored(rows[i])) return;
    const GenerationRequest& request = rows[i].place->request;
    try {
      found[i] = likelihood(logits.subspan(i * vocab, vocab), request.prompt[rows[i].next], request.scoring.top);
    } catch (...) {
      failed[i] = std::current_exception();
    }
  });
  for (size_t i = 0; i < rows.size(); ++i) {
    if (failed[i]) std::rethrow_exception(failed[i]);
    if (scored(rows[i])) rows[i].place->scores.push_back(std::move(found[i]));
  }
}

}  // namespace megatrain
