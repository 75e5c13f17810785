// A model loaded for a program that asks it several times, and what it says about given tokens.
#include "megatrain/inference/loaded_model.h"

#include <cmath>

#include "megatrain/inference/token_scores.h"
#include "tests/support/said.h"
#include "tests/support/speaking_model.h"

namespace megatrain::cli {
namespace {

LoadedModel load(const SpeakingModel& files) { return {files.path(), {"--device=cpu", "--threads=1"}, "test"}; }

std::vector<Prompt> prompts(const LoadedModel& model, const std::string& text, int64_t tokens) {
  Prompt prompt = model.prompt(text, "");
  prompt.max_tokens = tokens;
  return {prompt};
}

TEST(LoadedModel, AnswersTheSameWhenAskedAgainWithMoreRoom) {
  const SpeakingModel files;
  LoadedModel model = load(files);
  const auto ask = [&](int64_t tokens) {
    const std::vector<Prompt> asked = prompts(model, "abc abc", tokens);
    return answer(model.generator_for(asked), model.text(), asked, {})[0].ids;
  };
  const std::vector<int32_t> few = ask(3), more = ask(12);
  ASSERT_GE(more.size(), few.size());
  EXPECT_TRUE(std::equal(few.begin(), few.end(), more.begin()));
  EXPECT_EQ(ask(3), few);
}

TEST(LoadedModel, ObeysSettingsAndRefusesUnknownOnes) {
  const SpeakingModel files;
  EXPECT_EQ(LoadedModel(files.path(), {"--device=cpu", "--precision=bf16"}, "test").settings().precision, "bf16");
  EXPECT_EQ(LoadedModel(files.path(), {"--device=cpu"}, "test").settings().precision, "fp32");
  EXPECT_NE(refused_with(ExitCode::bad_config, [&] { LoadedModel(files.path(), {"--devise=cpu"}, "test"); }),
            "accepted");
}

TEST(TokenScores, AreTheLogSoftmaxOfTheLogitsAfterEachToken) {
  const SpeakingModel files;
  LoadedModel model = load(files);
  const std::vector<int32_t> ids = model.prompt("the quick brown fox jumps over it", "").ids;
  CachedForward& forward = model.generator_for({{.ids = ids}}).forward();
  const std::vector<float> found = log_probs(forward, ids);
  ASSERT_EQ(found.size(), ids.size() - 1);
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    // from the beginning of the text alone, in one pass
    const std::span<const float> logits =
        forward.run({{.sequence = 0, .position = 0, .ids = std::span(ids).first(i + 1), .logits = true}});
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    EXPECT_NEAR(found[i], logits[static_cast<size_t>(ids[i + 1])] - std::log(sum), 1e-5) << i;
  }
}

TEST(TokenScores, OfTheLastTokensAreThoseOfAllTokens) {
  const SpeakingModel files;
  LoadedModel model = load(files);
  const std::vector<int32_t> ids = model.prompt("abcdef ghi", "").ids;
  CachedForward& forward = model.generator_for({{.ids = ids}}).forward();
  std::vector<std::vector<float>> all, last;
  const auto into = [](std::vector<std::vector<float>>& rows) {
    return [&rows](int64_t, std::span<const float> logits) { rows.emplace_back(logits.begin(), logits.end()); };
  };
  each_logits(forward, ids, 0, into(all));
  each_logits(forward, ids, std::ssize(ids) - 3, into(last));
  ASSERT_EQ(all.size(), ids.size());
  ASSERT_EQ(last.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t id = 0; id < last[i].size(); ++id)
      EXPECT_NEAR(last[i][id], all[all.size() - 3 + i][id], 1e-4) << i << " " << id;
  }
}

TEST(TokenScores, HaveNothingToSayOfLessThanTwoTokensAndRefuseIdsOutsideTheVocabulary) {
  const SpeakingModel files;
  LoadedModel model = load(files);
  CachedForward& forward = model.generator_for({{.ids = {3, 4}}}).forward();
  EXPECT_TRUE(log_probs(forward, std::vector<int32_t>{3}).empty());
  for (const int32_t id : {-1, static_cast<int32_t>(model.config().vocab)})
    EXPECT_NE(refused_with(ExitCode::bad_input,
                           [&] {
                             log_probs(forward, std::vector<int32_t>{3, id});
                           })
                  .find(std::to_string(id)),
              std::string::npos);
}

}  // namespace
}  // namespace megatrain::cli
