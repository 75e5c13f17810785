// What `megatrain demo` teaches: questions of two-digit arithmetic with their answers. The seed splits them: those used
// to test a model are never trained on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/data/batch.h"
#include "megatrain/io/json.h"
#include "megatrain/train/session.h"

namespace megatrain {

enum class Sign : int32_t { plus = 10, minus = 12 };  // the values are token ids, like those of the digits

// "47+85=", then the digits of the result with the units first, since carries travel in that order: "231".
struct Question {
  static constexpr int64_t kTokens = 6, kAnswerTokens = 3;

  int32_t a, b;
  Sign sign;

  std::string text() const;             // "47 + 85"
  std::vector<int32_t> tokens() const;  // of the question
  std::vector<int32_t> answer() const;  // its tokens
};
// The number that these tokens say, as people write it: "132". "?" if one is not a digit.
std::string answer_text(const std::vector<int32_t>& answer);

struct ArithmeticTask {
  static constexpr int64_t kBatch = 256, kMicroBatch = 128, kSeqLen = Question::kTokens + Question::kAnswerTokens;

  std::vector<Question> test, train;
};
// All a + b, or all a - b that are not negative.
ArithmeticTask make_task(Sign sign, uint64_t seed);

// config.json of the model that learns them.
const nlohmann::json& arithmetic_model();

// Teaches for config.steps steps, and logs every 50th.
struct Losses {
  double first = 0, last = 0;
};
Losses teach(const TrainConfig& config, Trainer& trainer, const std::vector<Question>& questions);

// Greedy answers of the session's model, one per question.
using ArithmeticAnswers = std::vector<std::vector<int32_t>>;
ArithmeticAnswers ask(Session& session, const std::vector<Question>& questions);
double right_share(const std::vector<Question>& questions, const ArithmeticAnswers& answers);

}  // namespace megatrain
