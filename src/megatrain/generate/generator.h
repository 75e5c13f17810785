// Generates token ids for a list of prompts. When one ends, the next takes its place, so a pass mixes prompts and
// single tokens.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "megatrain/generate/cached_forward.h"
#include "megatrain/generate/decode_batch.h"

namespace megatrain {

struct Generation {
  std::vector<int32_t> ids;  // including the end token
  Finish finish = Finish::length;
};

class Generator {
 public:
  // As for CachedForward: the records must be idle and up to date. What fits stays on the device, the rest streams.
  Generator(Device& device, Ops& ops, const ModelConfig& model, const std::vector<LayerRecord>& records,
            const GeneratorOptions& options)
      : forward_(device, ops, model, records, options), batch_(forward_) {}
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  // Called with each new token except end tokens; returning false ends that sequence (Finish::stop).
  using OnToken = std::function<bool(size_t request, int32_t id)>;

  // Returns one result per request, in order. Throws Error(bad_input) like DecodeBatch::check. Once `*stop` is not 0,
  // every sequence ends where it is, even before its first token.
  std::vector<Generation> generate(const std::vector<GenerationRequest>& requests, const std::set<int32_t>& end_ids,
                                   const OnToken& on_token = {}, const volatile std::sig_atomic_t* stop = nullptr);

  CachedForward& forward() { return forward_; }
  DecodeBatch& batch() { return batch_; }  // idle between calls of generate()

 private:
  CachedForward forward_;
  DecodeBatch batch_;
};

}  // namespace megatrain
