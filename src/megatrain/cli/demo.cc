// `megatrain demo`: a small model learns two-digit addition from scratch. The seed splits the questions: those used to
// test it before and after are never trained on.
#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/rng.h"
#include "megatrain/base/units.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/run/metrics.h"
#include "megatrain/run/run_directory.h"
#include "megatrain/run/run_files.h"
#include "megatrain/train/optim_settings.h"
#include "megatrain/train/session.h"
#include "megatrain/train/state_files.h"

namespace megatrain {

namespace {

// "47+85=", then the digits of the sum with the units first, since carries travel in that order: "231".
constexpr int64_t kQuestionTokens = 6, kAnswerTokens = 3, kSeqLen = kQuestionTokens + kAnswerTokens;
constexpr int32_t kPlus = 10, kEquals = 11;
constexpr int64_t kVocab = 16, kQuestions = 100 * 100, kTestQuestions = 1024;
constexpr int64_t kBatch = 256, kMicroBatch = 128;

const nlohmann::json kModel = {{"architectures", {"LlamaForCausalLM"}},
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

struct Question {
  int32_t a, b;
};

void append(MicroBatch& micro, const Question& q) {
  const int32_t sum = q.a + q.b;
  const int32_t text[kSeqLen] = {q.a / 10, q.a % 10, kPlus,         q.b / 10, q.b % 10,
                                 kEquals,  sum % 10, sum / 10 % 10, sum / 100};
  micro.document_begin.push_back(static_cast<int32_t>(micro.tokens.size()));
  for (int64_t t = 0; t < kSeqLen; ++t) {
    const bool trained = t >= kQuestionTokens - 1 && t + 1 < kSeqLen;  // only the answer is learned
    micro.tokens.push_back(text[t]);
    micro.positions.push_back(static_cast<int32_t>(t));
    micro.labels.push_back(trained ? text[t + 1] : kIgnoreLabel);
    micro.trained += trained;
  }
}

Batch make_batch(const std::vector<Question>& questions) {
  Batch batch;
  for (size_t first = 0; first < questions.size(); first += kMicroBatch) {
    MicroBatch micro;
    for (size_t i = first; i < first + kMicroBatch; ++i) append(micro, questions[i]);
    micro.document_begin.push_back(static_cast<int32_t>(micro.tokens.size()));
    micro.longest = kSeqLen;
    batch.tokens += static_cast<int64_t>(micro.tokens.size());
    batch.trained += micro.trained;
    batch.micro_batches.push_back(std::move(micro));
  }
  return batch;
}

// All questions, shuffled by the seed; the first kTestQuestions are held out as the test set.
std::vector<Question> shuffled_questions(uint64_t seed) {
  constexpr uint64_t kPurpose = 0x64656d6f;  // "demo"
  std::vector<Question> questions;
  for (int32_t i = 0; i < kQuestions; ++i) questions.push_back({i / 100, i % 100});
  for (size_t i = questions.size() - 1; i > 0; --i)
    std::swap(questions[i], questions[random_below(seed, kPurpose, i, i + 1)]);
  return questions;
}

void refuse_what_the_demo_fixes(TrainConfig config) {
  const TrainConfig plain;
  config.seed = plain.seed;
  config.steps = plain.steps;
  config.run_dir = plain.run_dir;
  config.device = plain.device;
  config.threads = plain.threads;
  config.memory = plain.memory;
  config.plan = plain.plan;
  if (config != plain) {
    fail_config(
        "the demo has its own model, data and optimizer; it takes --seed, --steps, --run_dir, --device, --threads, "
        "--memory.* and --plan");
  }
}

TrainConfig demo_config(const std::vector<std::string>& overrides) {
  TrainConfig config = parse_config("", "demo", overrides, {.model = false, .data = false, .steps = false});
  refuse_what_the_demo_fixes(config);
  if (config.steps == 0) config.steps = 500;
  if (config.run_dir == TrainConfig().run_dir) config.run_dir = "runs/demo";
  config.precision = "fp32";
  config.seq_len = kSeqLen;
  config.batch = kBatch;
  config.micro_batch = kMicroBatch;
  config.optim = {.lr = 2e-3,
                  .beta2 = 0.98,
                  .weight_decay = 0.0,
                  .clip = 1.0,
                  .schedule = "cosine",
                  .warmup = std::min(50.0, static_cast<double>(config.steps)),
                  .min_lr = 1e-5};
  return config;
}

// The fraction of questions answered correctly. Each digit must be the model's top choice given the digits before it,
// which is what greedy decoding produces.
double accuracy(Trainer& trainer, const std::vector<Question>& test) {
  int64_t right = 0;
  for (size_t first = 0; first < test.size(); first += kBatch) {
    const std::vector<Question> part(test.begin() + static_cast<int64_t>(first),
                                     test.begin() + static_cast<int64_t>(first + kBatch));
    const std::vector<int32_t> correct = trainer.correct_tokens(make_batch(part));
    for (int64_t i = 0; i < kBatch; ++i) {
      const int32_t* answer = correct.data() + i * kSeqLen + kQuestionTokens - 1;
      right += std::all_of(answer, answer + kAnswerTokens, [](int32_t c) { return c == 1; });
    }
  }
  return static_cast<double>(right) / static_cast<double>(test.size());
}

struct Losses {
  double first = 0, last = 0;
};

Losses teach(const TrainConfig& config, Trainer& trainer, const std::vector<Question>& questions) {
  const LearningRate schedule = learning_rate_of(config);
  Losses losses;
  for (int64_t step = 1; step <= config.steps; ++step) {
    std::vector<Question> picked;
    for (int64_t i = 0; i < kBatch; ++i)
      picked.push_back(
          questions[random_below(config.seed, 0x7069636b, static_cast<uint64_t>(step * kBatch + i), questions.size())]);
    const double lr = learning_rate(schedule, step);
    const StepReport report = trainer.step(make_batch(picked), optim_step_of(config, lr, step));
    if (step == 1) losses.first = report.loss;
    losses.last = report.loss;
    if (step == 1 || step % 50 == 0)
      log_info(joined(metrics_fields({.step = step, .steps = config.steps, .lr = lr, .report = report})));
  }
  return losses;
}

}  // namespace

int verb_demo(const Arguments& arguments) {
  arguments.none();
  const TrainConfig config = demo_config(arguments.overrides());
  RunDirectory directory(config.run_dir, false);
  Session session(config,
                  {.config = parse_model_config(kModel, "the demo's model"), .config_text = kModel.dump(2) + "\n"});
  Trainer& trainer = session.trainer();
  const TensorTypes types = session.fill_weights();

  const std::vector<Question> questions = shuffled_questions(config.seed);
  const std::vector<Question> test(questions.begin(), questions.begin() + kTestQuestions),
      train(questions.begin() + kTestQuestions, questions.end());
  log_info(fmt::format(
      "teaching a model of {} parameters two-digit addition; {} questions to learn from, {} others to be asked",
      format_count(session.workload().parameters), train.size(), test.size()));
  const double before = accuracy(trainer, test);
  log_info(fmt::format("before training: {:.1f}% of unseen questions answered right", 100 * before));
  const Losses losses = teach(config, trainer, train);
  const double after = accuracy(trainer, test);
  log_info(fmt::format("after training: {:.1f}% of unseen questions answered right", 100 * after));
  directory.make();
  trainer.settle();
  const StateHash state = hash_state(trainer.records(), config.steps, static_cast<int>(config.threads));
  write_run_hash(config.run_dir, state, session.export_model(config.run_dir + "/model", types));
  if (arguments.json()) {
    fmt::print("{}\n", json_text(nlohmann::json{{"loss_first", losses.first},
                                                {"loss_last", losses.last},
                                                {"accuracy_before", before},
                                                {"accuracy_after", after},
                                                {"test_questions", test.size()},
                                                {"steps", config.steps},
                                                {"seed", config.seed},
                                                {"model", config.run_dir + "/model"}}));
  } else {
    fmt::print(
        "loss {:.3f} -> {:.3f}, right answers to unseen questions {:.1f}% -> {:.1f}%; the model is in {}/model\n",
        losses.first, losses.last, 100 * before, 100 * after, config.run_dir);
  }
  return 0;
}

}  // namespace megatrain
