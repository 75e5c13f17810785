// The loop that generates tokens, one pass at a time, for requests in the places of a KV cache. Prompts are fed in
// chunks; then each sequence grows by one token per pass. A request may join or leave between any two passes.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "megatrain/generate/cached_forward.h"
#include "megatrain/generate/likelihood.h"
#include "megatrain/generate/sampler.h"
#include "megatrain/grammar/token_constraint.h"
#include "megatrain/host/thread_team.h"

namespace megatrain {

// Which likelihoods a request wants, each with its `top` alternatives.
struct Scoring {
  bool answer = false;
  bool prompt = false;  // the prompt is then always computed from its beginning
  int64_t top = 0;
};

struct GenerationRequest {
  std::vector<int32_t> prompt;  // at least one token
  int64_t max_tokens = 0;       // prompt and answer together also end at max_context
  Sampling sampling;
  // Selects the random numbers: the same seed and sequence give the same draws, whatever the batch.
  uint64_t sequence = 0;
  // Skip computing the beginning of the prompt if a place of the cache still has it. On CUDA the last bits of logits
  // may then differ, because GEMMs of other shapes run other kernels.
  bool reuse = false;
  size_t adapter = 0;  // as for CachedForward::run()
  Scoring scoring = {};
  std::shared_ptr<TokenConstraint> constraint = nullptr;  // null: none
};

enum class Finish : uint8_t { stop, length };

class DecodeBatch {
 public:
  explicit DecodeBatch(CachedForward& forward);

  // Throws Error(bad_input) for a prompt that is empty, longer than max_context, or has an id outside the vocabulary.
  void check(const GenerationRequest& request) const;
  // Whether there is any token left to generate for it.
  bool may_grow(const GenerationRequest& request) const;
  // Whether there is any work to do for it: a token to generate, or a prompt to score.
  bool has_work(const GenerationRequest& request) const { return request.scoring.prompt || may_grow(request); }

  bool has_room() const;
  bool idle() const;

  // Puts a request into a free place, which must exist. The request must have passed check() and has_work(). `end_ids`
  // end its answer and must outlive it. Returns a unique ticket.
  using Ticket = uint64_t;
  Ticket add(GenerationRequest request, const std::set<int32_t>& end_ids);
  void drop(Ticket ticket);  // frees its place; does nothing if it has ended
  void clear();              // drops all requests and the cache contents, as after a failed pass

  struct Token {
    Ticket ticket;
    int32_t id;             // -1: none, as the request failed or wanted none
    bool is_end = false;    // is one of its end_ids
    bool complete = false;  // nothing may follow it but end tokens (TokenConstraint::complete)
    bool last = false;      // the request ended: it is one of the above, at its length, or failed
    std::exception_ptr failed = nullptr;
    std::optional<Likelihood> likelihood = std::nullopt;  // Scoring::answer
    std::vector<Likelihood> prompt = {};                  // with the first token, those of the prompt except its first
  };
  // Runs one pass for each adapter in use. Returns the new tokens; none while only long prompts are fed, or when idle.
  std::vector<Token> step();

  int64_t reused_tokens() const { return reused_tokens_; }  // over all prompts so far

 private:
  struct Place {
    bool free = true;
    Ticket ticket = 0;
    GenerationRequest request;
    const std::set<int32_t>* end_ids = nullptr;
    std::vector<int32_t> ids;             // prompt, then generated tokens; in a free place, those whose keys are cached
    size_t fed = 0;                       // how many of `ids` are in the cache
    std::vector<Likelihood> scores = {};  // of prompt[1], prompt[2], …

    bool scores_prompt() const { return request.scoring.prompt && scores.size() + 1 < request.prompt.size(); }

    size_t waiting() const { return free ? 0 : ids.size() - fed; }
  };

  // Logits predict ids[next] of a place.
  struct Row {
    Place* place;
    size_t next;
  };

  bool may_grow(const GenerationRequest& request, size_t tokens) const;
  size_t kept(const Place& place, const GenerationRequest& request) const;
  void pass(size_t adapter, std::vector<Token>& tokens);
  void score(std::span<const Row> rows, std::span<const float> logits);
  Token grow(Place& place, std::span<const float> logits);
  int32_t choose(Place& place, std::span<const float> logits) const;

  CachedForward& forward_;
  std::vector<Place> places_;
  std::unique_ptr<ThreadTeam> team_;  // scores prompts; made when one wants that
  Ticket tickets_ = 0;
  int64_t reused_tokens_ = 0;
};

}  // namespace megatrain
