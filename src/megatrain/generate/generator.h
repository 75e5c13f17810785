// Token ids to token ids: prompts are fed in chunks, then each sequence grows by a token a pass, several at once. As
// one ends the next prompt takes its place, so a pass mixes prompts and single tokens.
#pragma once

#include <cstdint>
#include <functional>
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
};

enum class Finish : uint8_t { stop, length };

struct Generation {
  std::vector<int32_t> ids;  // the end token included
  Finish finish = Finish::length;
};

class Generator {
 public:
  // See CachedForward: records that rest, up to date; on the device whatever fits, the rest streaming.
  Generator(Device& device, Ops& ops, const ModelConfig& model, const std::vector<LayerRecord>& records,
            const GeneratorOptions& options)
      : forward_(device, ops, model, records, options) {}

  // Called with each token as it comes, end tokens excepted; false ends that sequence there (Finish::stop).
  using OnToken = std::function<bool(size_t request, int32_t id)>;

  // One for each request, in order. Throws Error(bad_input) for a prompt that is empty, longer than max_context, or has
  // an id the model lacks.
  std::vector<Generation> generate(const std::vector<GenerationRequest>& requests, const std::set<int32_t>& end_ids,
                                   const OnToken& on_token = {});

  CachedForward& forward() { return forward_; }

 private:
  void check(const GenerationRequest& request) const;

  CachedForward forward_;
};

}  // namespace megatrain
