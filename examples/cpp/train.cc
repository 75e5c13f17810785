// megatrain as a library: loads a Hugging Face directory, trains three steps, and writes a Hugging Face directory.
//
//   train MODEL OUT --data.train=FILE.jsonl [--seq_len=1024 --batch=8 --optim.lr=1e-5 ...]
//
// The words are the keys of `megatrain train --help`. `megatrain train` with the same keys gives the same weights, bit
// for bit. With an installed megatrain: cmake -S examples/cpp -B build && cmake --build build
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <megatrain/megatrain.h>

namespace {

using namespace megatrain;

void train(const TrainConfig& config, const std::string& out) {
  // The device, what decides the bits, the workload and the plan; the trainer allocates all that a step needs.
  Session session(config);
  session.choose_algorithms();
  Trainer& trainer = session.trainer();
  const TensorTypes types = session.fill_weights();

  // Batches are a function of the configuration and the step.
  RunData data = open_data(config, session.source());
  const LearningRate rates = learning_rate_of(config);
  Batch batch;
  for (int64_t step = 1; step <= config.steps; ++step) {
    data.train->load(step - 1, batch);
    const StepReport report = trainer.step(batch, optim_step_of(config, learning_rate(rates, step), step));
    std::printf("step %d: loss %.4f, gradient norm %.3f, %.3f s, bound by %s\n", static_cast<int>(step), report.loss,
                report.grad_norm, report.seconds, report.bound_by().c_str());
  }

  // Updates run on into the next step; afterwards all records are at one version.
  trainer.settle();
  const StateHash hash = session.export_model(out, types);
  std::printf("wrote %s, weights %s\n", out.c_str(), hash.weights.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: train MODEL OUT --data.train=FILE.jsonl [--key=value ...]\n");
    return 2;
  }
  try {
    std::vector<std::string> keys = {std::string("--model.path=") + argv[1], "--steps=3"};
    keys.insert(keys.end(), argv + 3, argv + argc);
    train(parse_config("", "the command line", keys), argv[2]);
    return 0;
  } catch (const Error& error) {  // a sentence for a person, and the exit code of docs/contract.md
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "internal error: %s\n", error.what());
    return 1;
  }
}
