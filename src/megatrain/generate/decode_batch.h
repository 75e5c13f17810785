// The one loop that makes tokens: requests in the places of a cache, a pass at a time. Prompts are fed in chunks, then
// each sequence grows by a token a pass, several at once; a request may join or leave between any two passes.
#pragma once

#include <cstdint>
#include <exception>
#include <set>
#include <vector>

#include "megatrain/generate/cached_forward.h"
#include "megatrain/generate/sampler.h"

namespace megatrain {

struct GenerationRequest {
  std::vector<int32_t> prompt;  // at least one token
  int64_t max_tokens = 0;       // prompt and answer also end at max_context
  Sampling sampling;
  uint64_t sequence = 0;  // chooses the random numbers: the same seed and sequence, the same draws, whatever the batch
  // What a place of the cache still holds of the prompt's beginning is not computed again. On CUDA the last bits of
  // logits may then differ, as products of other shapes run other kernels.
  bool reuse = false;
};

enum class Finish : uint8_t { stop, length };

class DecodeBatch {
 public:
  explicit DecodeBatch(CachedForward& forward);

  // Throws Error(bad_input) for a prompt that is empty, longer than max_context, or has an id the model lacks.
  void check(const GenerationRequest& request) const;
  // Whether there is a token to make for it.
  bool may_grow(const GenerationRequest& request) const;

  bool has_room() const;
  bool idle() const;

  // A request in a free place, where there has to be one; it may_grow() and was checked. `end_ids` end its answer and
  // outlive it. Returns a number of its own.
  using Ticket = uint64_t;
  Ticket add(GenerationRequest request, const std::set<int32_t>& end_ids);
  void drop(Ticket ticket);  // frees its place; nothing happens when it has ended
  void clear();              // drops all, and what the cache holds, as after a pass that failed

  struct Token {
    Ticket ticket;
    int32_t id;
    bool is_end = false;  // one of its end_ids
    bool last = false;    // it has ended: at an end token, at its length, or because it failed
    std::exception_ptr failed = nullptr;
  };
  // One pass. Returns the tokens that came, none while long prompts are fed or when it is idle.
  std::vector<Token> step();

  int64_t reused_tokens() const { return reused_tokens_; }  // of all prompts so far

 private:
  struct Place {
    bool free = true;
    Ticket ticket = 0;
    GenerationRequest request;
    const std::set<int32_t>* end_ids = nullptr;
    std::vector<int32_t> ids;  // prompt, then what came; of a free place what its keys are of
    size_t fed = 0;            // of them

    size_t waiting() const { return free ? 0 : ids.size() - fed; }
  };

  bool may_grow(const GenerationRequest& request, size_t tokens) const;
  size_t kept(const Place& place, const std::vector<int32_t>& prompt) const;
  Token grow(Place& place, std::span<const float> logits);

  CachedForward& forward_;
  std::vector<Place> places_;
  Ticket tickets_ = 0;
  int64_t reused_tokens_ = 0;
};

}  // namespace megatrain
