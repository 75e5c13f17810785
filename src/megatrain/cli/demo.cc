// `megatrain demo`: a small model learns two-digit addition from scratch. With --adapter, an adapter of that model then
// learns subtraction, while the model itself stays as it is.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/cli/arithmetic.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/run/run_directory.h"
#include "megatrain/run/run_files.h"
#include "megatrain/train/session.h"
#include "megatrain/train/state_files.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr int64_t kSteps = 500;
constexpr double kBaseRate = 2e-3, kAdapterRate = 3e-3;

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

// What is common to both trainings.
TrainConfig demo_config(const std::vector<std::string>& overrides) {
  TrainConfig config = parse_config("", "demo", overrides, {.model = false, .data = false, .steps = false});
  refuse_what_the_demo_fixes(config);
  if (config.run_dir == TrainConfig().run_dir) config.run_dir = "runs/demo";
  config.run_dir.resize(config.run_dir.find_last_not_of('/') + 1);
  if (config.steps == 0) config.steps = kSteps;
  config.precision = "fp32";
  config.seq_len = ArithmeticTask::kSeqLen;
  config.batch = ArithmeticTask::kBatch;
  config.micro_batch = ArithmeticTask::kMicroBatch;
  return config;
}

// `lr` is the highest learning rate, reached after 50 steps.
TrainConfig with_rate(TrainConfig config, double lr) {
  config.optim = {.lr = lr,
                  .beta2 = 0.98,
                  .weight_decay = 0.0,
                  .clip = 1.0,
                  .schedule = "cosine",
                  .warmup = std::min(50.0, static_cast<double>(config.steps)),
                  .min_lr = 1e-5};
  return config;
}

void write_model(Session& session, const TensorTypes& types) {
  const TrainConfig& config = session.config();
  const StateHash state = hash_state(session.trainer().records(), config.steps, static_cast<int>(config.threads));
  write_run_hash(config.run_dir, state, session.export_model(config.run_dir + "/model", types));
}

// What training did to the answers.
struct Learned {
  Losses losses;
  double before = 0, after = 0;  // the share of right answers

  json to_json() const {
    return {{"loss_first", losses.first},
            {"loss_last", losses.last},
            {"accuracy_before", before},
            {"accuracy_after", after}};
  }
  std::string text() const {
    return fmt::format("loss {:.3f} -> {:.3f}, right answers to unseen questions {:.1f}% -> {:.1f}%", losses.first,
                       losses.last, 100 * before, 100 * after);
  }
};

Learned teach_task(Session& session, const ArithmeticTask& task) {
  Learned learned{.before = right_share(task.test, ask(session, task.test))};
  log_info(fmt::format("before training: {:.1f}% of unseen questions answered right", 100 * learned.before));
  learned.losses = teach(session.config(), session.trainer(), task.train);
  learned.after = right_share(task.test, ask(session, task.test));
  log_info(fmt::format("after training: {:.1f}% of unseen questions answered right", 100 * learned.after));
  return learned;
}

Learned teach_base(const TrainConfig& config, const ArithmeticTask& task) {
  RunDirectory directory(config.run_dir, false);
  Session session(config, {.config = parse_model_config(arithmetic_model(), "the demo's model"),
                           .config_text = arithmetic_model().dump(2) + "\n"});
  session.trainer();
  const TensorTypes types = session.fill_weights();
  log_info(fmt::format(
      "teaching a model of {} parameters two-digit addition; {} questions to learn from, {} others to be asked",
      format_count(session.workload().parameters), task.train.size(), task.test.size()));
  const Learned learned = teach_task(session, task);
  directory.make();
  write_model(session, types);
  return learned;
}

int demo_base(const Arguments& arguments) {
  const TrainConfig config = with_rate(demo_config(arguments.overrides()), kBaseRate);
  const ArithmeticTask task = make_task(Sign::plus, config.seed);
  const Learned learned = teach_base(config, task);
  if (arguments.json()) {
    json result = learned.to_json();
    result.update(json{{"test_questions", task.test.size()},
                       {"steps", config.steps},
                       {"seed", config.seed},
                       {"model", config.run_dir + "/model"}});
    fmt::print("{}\n", json_text(result));
  } else {
    fmt::print("{}; the model is in {}/model\n", learned.text(), config.run_dir);
  }
  return 0;
}

// Whether the run is a finished demo with this program's model.
bool is_finished_demo(const std::string& run_dir) {
  std::error_code none;
  return is_demo_directory(run_dir) && std::filesystem::exists(run_dir + "/model/config.json", none) &&
         read_json_file(run_dir + "/model/config.json") == arithmetic_model();
}

struct BothAnswers {
  ArithmeticAnswers plus, minus;
};

// The answers of the model in the base's directory, read from its files.
BothAnswers ask_base(TrainConfig base, const ArithmeticTask& plus, const ArithmeticTask& minus) {
  base.model.path = base.run_dir + "/model";
  Session session(base);
  session.trainer();
  session.fill_weights();
  return {.plus = ask(session, plus.test), .minus = ask(session, minus.test)};
}

int64_t equal_answers(const BothAnswers& a, const BothAnswers& b) {
  const auto count = [](const ArithmeticAnswers& x, const ArithmeticAnswers& y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), int64_t{0}, std::plus<>(), std::equal_to<>());
  };
  return count(a.plus, b.plus) + count(a.minus, b.minus);
}

TrainConfig adapter_config_of(const TrainConfig& given) {
  TrainConfig config = with_rate(given, kAdapterRate);
  config.model.path = given.run_dir + "/model";
  config.run_dir += "-adapter";
  config.adapter.rank = 16;
  config.adapter.alpha = 32;
  return config;
}

void print_with_and_without(const Question& question, const std::vector<int32_t>& with,
                            const std::vector<int32_t>& without) {
  fmt::print("  {:<8} {:>9} {:>9}\n", question.text() + " =", answer_text(with), answer_text(without));
}

int demo_adapter(const Arguments& arguments) {
  const TrainConfig given = demo_config(arguments.overrides()), config = adapter_config_of(given);
  const TrainConfig base = with_rate(given, kBaseRate);
  const ArithmeticTask plus = make_task(Sign::plus, given.seed), minus = make_task(Sign::minus, given.seed);
  RunDirectory directory(config.run_dir, false);
  if (is_finished_demo(base.run_dir)) {
    verify_model_of_run(base.run_dir + "/model");
    log_info(fmt::format("the base is {}/model, of an earlier demo", base.run_dir));
  } else {
    teach_base(base, plus);
  }
  const BothAnswers before = ask_base(base, plus, minus);

  Session session(config);
  session.trainer();
  const TensorTypes types = session.fill_weights();
  log_info(
      fmt::format("teaching an adapter of {} parameters subtraction; {} questions to learn from, {} others to be asked",
                  format_count(session.workload().trained_parameters), minus.train.size(), minus.test.size()));
  const Learned learned = teach_task(session, minus);
  directory.make();
  write_model(session, types);
  const BothAnswers on{.plus = ask(session, plus.test), .minus = ask(session, minus.test)};
  const BothAnswers off = ask_base(base, plus, minus);
  const int64_t same = equal_answers(before, off);
  const size_t asked = plus.test.size() + minus.test.size();
  const double with = right_share(plus.test, on.plus), without = right_share(plus.test, off.plus);
  if (arguments.json()) {
    json result = learned.to_json();
    result.update(json{{"test_questions", minus.test.size()},
                       {"steps", config.steps},
                       {"seed", config.seed},
                       {"model", config.model.path},
                       {"adapter", config.run_dir + "/model"},
                       {"addition_with_adapter", with},
                       {"addition_without_adapter", without},
                       {"answers_without_adapter", asked},
                       {"answers_as_before", same}});
    fmt::print("{}\n", json_text(result));
    return 0;
  }
  fmt::print("subtraction: {}\n", learned.text());
  fmt::print("  {:<8} {:>9} {:>9}\n", "", "adapter", "without");
  for (size_t i = 0; i < 3; ++i) print_with_and_without(minus.test[i], on.minus[i], off.minus[i]);
  for (size_t i = 0; i < 2; ++i) print_with_and_without(plus.test[i], on.plus[i], off.plus[i]);
  fmt::print(
      "addition: {:.1f}% right with the adapter, {:.1f}% without it; {} of {} answers without it are those from "
      "before\n"
      "the base is in {}, the adapter in {}/model\n",
      100 * with, 100 * without, same, asked, config.model.path, config.run_dir);
  return 0;
}

}  // namespace

int verb_demo(const Arguments& arguments) {
  arguments.none();
  return arguments.flag("--adapter") ? demo_adapter(arguments) : demo_base(arguments);
}

}  // namespace megatrain
