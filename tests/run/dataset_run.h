// Whole runs on datasets: a tiny model, and a configuration that trains it.
#pragma once

#include "tests/support/chat_fixture.h"

namespace megatrain {

class DatasetRun : public ChatFixture {
 protected:
  TrainConfig run_config(const std::string& name) {
    TrainConfig config = chat_config();
    config.data.train = {{.path = at("data.jsonl")}};
    config.run_dir = at(name);
    config.threads = 2;
    config.memory.gpu_bytes = config.memory.host_bytes = int64_t{1} << 30;
    return config;
  }

  // 30 conversations, of which 5 are held out and evaluated every `every` steps; keeps the best model.
  TrainConfig best_config(const std::string& name, int64_t steps, int64_t every) {
    write("data.jsonl", conversations(30));
    TrainConfig config = run_config(name);
    config.steps = steps;
    config.data.eval_split = 5;
    config.eval = {.every = every, .keep_best = true};
    return config;
  }
};

}  // namespace megatrain
