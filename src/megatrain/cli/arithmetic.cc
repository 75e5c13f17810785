#include "megatrain/cli/arithmetic.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/log.h"
#include "megatrain/base/rng.h"
#include "megatrain/generate/generator.h"
#include "megatrain/run/metrics.h"
#include "megatrain/train/optim_settings.h"

namespace megatrain {

namespace {

constexpr int32_t kEquals = 11;
constexpr int64_t kVocab = 16;

void append(MicroBatch& micro, const Question& question) {
  std::vector<int32_t> text = question.tokens();
  for (const int32_t digit : question.answer()) text.push_back(digit);
  micro.document_begin.push_back(static_cast<int32_t>(micro.tokens.size()));
  for (size_t t = 0; t < text.size(); ++t) {
    const bool trained = t + 1 >= Question::kTokens && t + 1 < text.size();  // only the answer is learned
    micro.tokens.push_back(text[t]);
    micro.positions.push_back(static_cast<int32_t>(t));
    micro.labels.push_back(trained ? text[t + 1] : kIgnoreLabel);
    micro.trained += trained;
  }
}

Batch make_batch(const std::vector<Question>& questions) {
  Batch batch;
  for (size_t first = 0; first < questions.size(); first += ArithmeticTask::kMicroBatch) {
    MicroBatch micro;
    for (size_t i = first; i < first + ArithmeticTask::kMicroBatch; ++i) append(micro, questions[i]);
    micro.document_begin.push_back(static_cast<int32_t>(micro.tokens.size()));
    micro.longest = ArithmeticTask::kSeqLen;
    batch.tokens += static_cast<int64_t>(micro.tokens.size());
    batch.trained += micro.trained;
    batch.micro_batches.push_back(std::move(micro));
  }
  return batch;
}

}  // namespace

std::string Question::text() const { return fmt::format("{} {} {}", a, sign == Sign::plus ? '+' : '-', b); }

std::vector<int32_t> Question::tokens() const {
  return {a / 10, a % 10, static_cast<int32_t>(sign), b / 10, b % 10, kEquals};
}

std::vector<int32_t> Question::answer() const {
  const int32_t result = sign == Sign::plus ? a + b : a - b;
  return {result % 10, result / 10 % 10, result / 100};
}

std::string answer_text(const std::vector<int32_t>& answer) {
  int64_t number = 0;
  for (auto digit = answer.rbegin(); digit != answer.rend(); ++digit) {
    if (*digit > 9) return "?";
    number = 10 * number + *digit;
  }
  return fmt::format("{}", number);
}

ArithmeticTask make_task(Sign sign, uint64_t seed) {
  constexpr uint64_t kPurpose = 0x64656d6f;  // "demo"
  const size_t tested = sign == Sign::plus ? 1024 : 512;
  std::vector<Question> questions;
  for (int32_t i = 0; i < 100 * 100; ++i) {
    const Question question{.a = i / 100, .b = i % 100, .sign = sign};
    if (sign == Sign::plus || question.a >= question.b) questions.push_back(question);
  }
  for (size_t i = questions.size() - 1; i > 0; --i)
    std::swap(questions[i], questions[random_below(seed, kPurpose, i, i + 1)]);
  const auto middle = questions.begin() + static_cast<std::ptrdiff_t>(tested);
  return {.test = {questions.begin(), middle}, .train = {middle, questions.end()}};
}

const nlohmann::json& arithmetic_model() {
  static const nlohmann::json kModel = {{"architectures", {"LlamaForCausalLM"}},
                                        {"model_type", "llama"},
                                        {"vocab_size", kVocab},
                                        {"hidden_size", 128},
                                        {"intermediate_size", 512},
                                        {"num_hidden_layers", 3},
                                        {"num_attention_heads", 4},
                                        {"num_key_value_heads", 4},
                                        {"max_position_embeddings", 32},
                                        {"rms_norm_eps", 1e-5},
                                        {"initializer_range", 0.02},
                                        {"hidden_act", "silu"},
                                        {"tie_word_embeddings", false},
                                        {"rope_theta", 10000.0},
                                        {"torch_dtype", "float32"}};
  return kModel;
}

Losses teach(const TrainConfig& config, Trainer& trainer, const std::vector<Question>& questions) {
  const LearningRate schedule = learning_rate_of(config);
  Losses losses;
  for (int64_t step = 1; step <= config.steps; ++step) {
    std::vector<Question> picked;
    for (int64_t i = 0; i < config.batch; ++i)
      picked.push_back(questions[random_below(config.seed, 0x7069636b, static_cast<uint64_t>(step * config.batch + i),
                                              questions.size())]);
    const double lr = learning_rate(schedule, step);
    const StepReport report = trainer.step(make_batch(picked), optim_step_of(config, lr, step));
    if (step == 1) losses.first = report.loss;
    losses.last = report.loss;
    if (step == 1 || step % 50 == 0)
      log_info(joined(metrics_fields({.step = step, .steps = config.steps, .lr = lr, .report = report})));
  }
  trainer.settle();
  return losses;
}

ArithmeticAnswers ask(Session& session, const std::vector<Question>& questions) {
  Machine& machine = session.machine();
  const std::vector<LayerRecord>& records = session.trainer().records();
  GeneratorOptions options{.max_context = ArithmeticTask::kSeqLen,
                           .max_batch = ArithmeticTask::kMicroBatch,
                           .adapter = session.identity().trained.adapter};
  options.memory_bytes = CachedForward::least_bytes(*machine.device, *machine.ops, session.model(), records, options);
  std::vector<GenerationRequest> requests;
  for (const Question& question : questions)
    requests.push_back({.prompt = question.tokens(), .max_tokens = Question::kAnswerTokens});
  Generator generator(*machine.device, *machine.ops, session.model(), records, options);
  ArithmeticAnswers answers;
  for (Generation& generation : generator.generate(requests, {})) answers.push_back(std::move(generation.ids));
  return answers;
}

double right_share(const std::vector<Question>& questions, const ArithmeticAnswers& answers) {
  int64_t right = 0;
  for (size_t i = 0; i < questions.size(); ++i) right += questions[i].answer() == answers[i];
  return static_cast<double>(right) / static_cast<double>(questions.size());
}

}  // namespace megatrain
