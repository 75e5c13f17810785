#include "megatrain/generate/generator.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

namespace {

// A request in its place of the cache.
struct Live {
  bool free = true;
  size_t request = 0;
  std::vector<int32_t> ids;  // prompt, then what came
  size_t fed = 0;            // of them

  size_t waiting() const { return free ? 0 : ids.size() - fed; }
};

}  // namespace

void Generator::check(const GenerationRequest& request) const {
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()), context = forward_.options().max_context;
  if (tokens == 0) fail_input("a prompt has no tokens; give some text to go on from");
  if (tokens > context)
    fail_input(fmt::format("a prompt has {} tokens, where {} fit the context; shorten it", tokens, context));
  for (const int32_t id : request.prompt) {
    if (id < 0 || id >= forward_.model().vocab) {
      fail_input(
          fmt::format("a prompt has token {}, where the model has embeddings for 0 to {}; its tokenizer.json "
                      "belongs to another model",
                      id, forward_.model().vocab - 1));
    }
  }
}

std::vector<Generation> Generator::generate(const std::vector<GenerationRequest>& requests,
                                            const std::set<int32_t>& end_ids, const OnToken& on_token) {
  for (const GenerationRequest& request : requests) check(request);
  const size_t context = static_cast<size_t>(forward_.options().max_context),
               vocab = static_cast<size_t>(forward_.model().vocab);
  std::vector<Generation> results(requests.size());
  std::vector<Live> places(static_cast<size_t>(forward_.options().max_batch));
  size_t next = 0;
  const auto may_grow = [&](const Live& live) {
    const GenerationRequest& request = requests[live.request];
    return live.ids.size() < context &&
           live.ids.size() - request.prompt.size() < static_cast<size_t>(std::max<int64_t>(request.max_tokens, 0));
  };
  for (;;) {
    for (Live& live : places) {
      while (live.free && next < requests.size()) {
        live = {.free = false, .request = next, .ids = requests[next].prompt};
        live.free = !may_grow(live);
        ++next;
      }
    }
    // Those that only wait for their next token go first: a long prompt delays no other sequence.
    std::vector<size_t> turn(places.size());
    for (size_t i = 0; i < turn.size(); ++i) turn[i] = i;
    std::stable_sort(turn.begin(), turn.end(),
                     [&](size_t a, size_t b) { return places[a].waiting() == 1 && places[b].waiting() != 1; });
    std::vector<CachedForward::Feed> feeds;
    std::vector<Live*> fed;
    size_t room = static_cast<size_t>(forward_.pass_tokens());
    for (const size_t place : turn) {
      Live& live = places[place];
      const size_t count = std::min(live.waiting(), room);
      if (count == 0) continue;
      room -= count;
      feeds.push_back({.sequence = static_cast<int64_t>(place),
                       .position = static_cast<int64_t>(live.fed),
                       .ids = std::span(live.ids).subspan(live.fed, count),
                       .logits = live.fed + count == live.ids.size(),
                       .length = static_cast<int64_t>(live.ids.size())});
      live.fed += count;
      if (feeds.back().logits) fed.push_back(&live);
    }
    if (feeds.empty()) return results;

    const std::span<const float> logits = forward_.run(feeds);
    for (size_t row = 0; row < fed.size(); ++row) {
      Live& live = *fed[row];
      const GenerationRequest& request = requests[live.request];
      Generation& result = results[live.request];
      const int32_t id = sample(logits.subspan(row * vocab, vocab), request.sampling, request.sequence,
                                static_cast<int64_t>(live.ids.size()));
      live.ids.push_back(id);
      // Beyond this length all its tokens have other angles: its keys are made again.
      if (std::ssize(live.ids) == forward_.model().rope.long_above() + 1) live.fed = 0;
      result.ids.push_back(id);
      const bool stops = end_ids.contains(id) || (on_token && !on_token(live.request, id));
      if (stops) result.finish = Finish::stop;
      live.free = stops || !may_grow(live);
    }
  }
}

}  // namespace megatrain
