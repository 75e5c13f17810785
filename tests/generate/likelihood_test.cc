// Likelihoods of tokens: against a direct sum, and in a batch against the logits of single passes.
#include "megatrain/generate/likelihood.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "megatrain/base/error.h"
#include "megatrain/generate/generator.h"
#include "tests/generate/tiny_models.h"

namespace megatrain {
namespace {

const std::vector<float> kSomeLogits = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, -30.0f};

TEST(Likelihood, IsTheLogSoftmaxAndAlternativesAreLikeliestFirst) {
  double sum = 0;
  for (const float logit : kSomeLogits) sum += std::exp(static_cast<double>(logit));
  for (int32_t id = 0; id < std::ssize(kSomeLogits); ++id) {
    const Likelihood found = likelihood(kSomeLogits, id, 3);
    EXPECT_EQ(found.token.id, id);
    EXPECT_NEAR(found.token.log_prob, static_cast<double>(kSomeLogits[static_cast<size_t>(id)]) - std::log(sum), 1e-6);
    ASSERT_EQ(found.top.size(), 3u);
    EXPECT_EQ(found.top[0].id, 1);  // of equals, the lower id
    EXPECT_EQ(found.top[1].id, 3);
    EXPECT_EQ(found.top[2].id, 4);
    if (id != 4) continue;
    EXPECT_EQ(found.top[2].log_prob, found.token.log_prob);  // the same number to the last bit
  }
  EXPECT_TRUE(likelihood(kSomeLogits, 0, 0).top.empty());
  EXPECT_EQ(likelihood(kSomeLogits, 0, 100).top.size(), kSomeLogits.size());
  EXPECT_THROW(likelihood(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}, 0, 1), Error);
}

}  // namespace
}  // namespace megatrain

namespace megatrain::generation {

namespace {

// The likelihoods of a prompt and of an answer to it.
struct Scores {
  std::vector<Likelihood> prompt, answer;
  std::vector<int32_t> ids;
};

std::vector<Scores> scores_of(Generator& generator, const std::vector<GenerationRequest>& requests) {
  static const std::set<int32_t> kNoEnds;
  std::vector<Scores> scores(requests.size());
  std::map<DecodeBatch::Ticket, size_t> places;
  DecodeBatch& batch = generator.batch();
  for (size_t next = 0; next < requests.size() || !batch.idle();) {
    for (; next < requests.size() && batch.has_room(); ++next) {
      batch.check(requests[next]);
      places[batch.add(requests[next], kNoEnds)] = next;
    }
    for (const DecodeBatch::Token& token : batch.step()) {
      EXPECT_FALSE(token.failed);
      Scores& of = scores[places.at(token.ticket)];
      if (!token.prompt.empty()) of.prompt = token.prompt;
      if (token.likelihood) of.answer.push_back(*token.likelihood);
      if (token.id >= 0) of.ids.push_back(token.id);
    }
  }
  return scores;
}

void expect_near(const Likelihood& got, const Likelihood& wanted) {
  EXPECT_EQ(got.token.id, wanted.token.id);
  EXPECT_NEAR(got.token.log_prob, wanted.token.log_prob, 1e-4);
  ASSERT_EQ(got.top.size(), wanted.top.size());
  for (size_t i = 0; i < got.top.size(); ++i) EXPECT_NEAR(got.top[i].log_prob, wanted.top[i].log_prob, 1e-4);
}

}  // namespace

TEST(Likelihood, PromptsAndAnswersAreScoredAsByPassesOfOneToken) {
  for (const char* name : {"llama_mha", "qwen3_window", "gemma2"}) {
    TinyModel model(name);
    std::vector<GenerationRequest> requests = golden_requests(name);
    for (GenerationRequest& request : requests) request.scoring = {.answer = true, .prompt = true, .top = 3};
    requests[0].max_tokens = 0;  // its prompt alone
    Generator alone = model.generator({.max_context = 100, .memory_bytes = 1 << 30});
    const int64_t row = model.config.vocab * 4;
    for (const GeneratorOptions& options :
         {GeneratorOptions{.max_context = 100, .max_batch = 3, .memory_bytes = 1 << 30, .logits_bytes = 1000 * row},
          GeneratorOptions{
              .max_context = 100, .max_batch = 2, .chunk_tokens = 7, .memory_bytes = 1 << 30, .logits_bytes = 3 * row},
          GeneratorOptions{.max_context = 100, .max_batch = 1, .memory_bytes = 1 << 30, .logits_bytes = 1}}) {
      Generator generator = model.generator(options);
      const std::vector<Scores> scores = scores_of(generator, requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        const std::vector<int32_t>& prompt = requests[i].prompt;
        ASSERT_EQ(scores[i].prompt.size() + 1, prompt.size());
        EXPECT_EQ(std::ssize(scores[i].ids), requests[i].max_tokens);
        EXPECT_EQ(scores[i].answer.size(), scores[i].ids.size());
        std::vector<int32_t> all = prompt;
        all.insert(all.end(), scores[i].ids.begin(), scores[i].ids.end());
        for (size_t at = 0; at + 1 < all.size(); ++at) {
          const std::span<const float> logits = alone.forward().run({{.sequence = 0,
                                                                      .position = static_cast<int64_t>(at),
                                                                      .ids = std::span(all).subspan(at, 1),
                                                                      .logits = true,
                                                                      .length = static_cast<int64_t>(at) + 1}});
          const Likelihood wanted = likelihood(logits, all[at + 1], 3);
          expect_near(at + 1 < prompt.size() ? scores[i].prompt[at] : scores[i].answer[at + 1 - prompt.size()], wanted);
        }
      }
    }
  }
}

TEST(Likelihood, WeightsThatStreamScoreAPromptWithTheSameBits) {
  TinyModel model("llama_mha");
  std::vector<GenerationRequest> requests = golden_requests("llama_mha");
  for (GenerationRequest& request : requests) request.scoring = {.prompt = true, .top = 2};
  const int64_t row = model.config.vocab * 4;
  GeneratorOptions options{.max_context = 100, .max_batch = 2, .memory_bytes = 1 << 30, .logits_bytes = 4 * row};
  Generator resident = model.generator(options);
  options.in_place = false;
  options.memory_bytes = CachedForward::least_bytes(*model.device, *model.ops, model.config, model.records, options);
  Generator streamed = model.generator(options);
  const std::vector<Scores> a = scores_of(resident, requests), b = scores_of(streamed, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(a[i].prompt.size(), b[i].prompt.size());
    for (size_t at = 0; at < a[i].prompt.size(); ++at)
      EXPECT_EQ(a[i].prompt[at].token.log_prob, b[i].prompt[at].token.log_prob);
  }
}

TEST(Likelihood, AScoredPromptIsNeverTakenFromTheCache) {
  TinyModel model("llama_mha");
  Generator generator = model.generator({.max_context = 100, .memory_bytes = 1 << 30, .logits_bytes = 1 << 20});
  std::vector<GenerationRequest> requests(2, golden_requests("llama_mha")[1]);
  for (GenerationRequest& request : requests) request.reuse = true, request.scoring.prompt = true;
  const std::vector<Scores> scores = scores_of(generator, requests);
  EXPECT_EQ(scores[0].prompt.size(), scores[1].prompt.size());
  EXPECT_EQ(scores[0].prompt.size() + 1, requests[0].prompt.size());
}

namespace {

// Allows two tokens in turn, five times.
class Alternating final : public TokenConstraint {
 public:
  Alternating(int64_t vocabulary, int32_t first, int32_t second)
      : vocabulary_(vocabulary), ids_{first, second}, set_(vocabulary) {}
  const TokenSet& allowed() override {
    set_ = TokenSet(vocabulary_);
    set_.add(ids_[taken_ % 2]);
    return set_;
  }
  void accept(int32_t id) override {
    EXPECT_EQ(id, ids_[taken_ % 2]);
    ++taken_;
  }
  bool complete() const override { return taken_ == 5; }

 private:
  int64_t vocabulary_;
  int32_t ids_[2];
  TokenSet set_;
  size_t taken_ = 0;
};

}  // namespace

TEST(Likelihood, AConstraintChoosesTheTokensAndEndsTheAnswer) {
  TinyModel model("llama_mha");
  Generator generator = model.generator({.max_context = 100, .max_batch = 2, .memory_bytes = 1 << 30});
  std::vector<GenerationRequest> requests(2, golden_requests("llama_mha")[0]);
  requests[0].max_tokens = requests[1].max_tokens = 50;
  requests[0].constraint = std::make_shared<Alternating>(model.config.vocab, 3, 4);
  requests[1].sampling = {.temperature = 2, .top_p = 0.5, .top_k = 2, .seed = 1};
  requests[1].constraint = std::make_shared<Alternating>(model.config.vocab, 5, 6);
  const std::vector<Scores> scores = scores_of(generator, requests);
  EXPECT_EQ(scores[0].ids, (std::vector<int32_t>{3, 4, 3, 4, 3}));
  EXPECT_EQ(scores[1].ids, (std::vector<int32_t>{5, 6, 5, 6, 5}));
}

}  // namespace megatrain::generation
