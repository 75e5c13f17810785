// A chat set generated from a seed: questions whose answer swaps two words, and a tiny model that can learn this. The
// test questions are not among the training samples.
#pragma once

#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/rng.h"
#include "megatrain/io/json.h"
#include "tests/support/byte_model.h"

namespace megatrain {

struct Exchange {
  std::string question, answer;
};

// All are different: no pair of words occurs twice.
inline std::vector<Exchange> exchanges(uint64_t seed, size_t count) {
  uint64_t drawn = 0;
  const auto below = [&](uint64_t bound) { return random_below(seed, 0x73776170, drawn++, bound); };
  const auto word = [&] {
    std::string text;
    for (int i = 0; i < 4; ++i) text += static_cast<char>('a' + below(26));
    return text;
  };
  std::set<std::pair<std::string, std::string>> seen;
  std::vector<Exchange> rows;
  while (rows.size() < count) {
    const std::string a = word(), b = word();
    const uint64_t form = below(3);
    if (!seen.emplace(a, b).second) continue;
    const char* const forms[] = {"Swap these words: ", "Please swap ", ""};
    rows.push_back({fmt::format("{}{} {}", forms[form], a, b), b + " " + a});
  }
  return rows;
}

// Writes test.jsonl, train.jsonl (every fourth conversation has two exchanges), model/ (without weights) and chat.yaml,
// which trains a model from random weights into run/.
inline void write_chat_set(uint64_t seed, const std::string& folder) {
  constexpr size_t kTest = 200, kTrained = 2000;
  using nlohmann::json;
  const std::vector<Exchange> all = exchanges(seed, kTest + kTrained);
  std::ofstream test(folder + "/test.jsonl"), train(folder + "/train.jsonl");
  for (size_t i = 0; i < kTest; ++i) test << json{{"question", all[i].question}, {"answer", all[i].answer}} << "\n";
  for (size_t i = kTest, turns = 1; i < all.size(); i += turns) {
    turns = i % 4 == 0 && i + 1 < all.size() ? 2 : 1;
    json messages = json::array();
    for (size_t turn = i; turn < i + turns; ++turn) {
      messages.push_back({{"role", "user"}, {"content", all[turn].question}});
      messages.push_back({{"role", "assistant"}, {"content", all[turn].answer}});
    }
    train << json{{"messages", messages}} << "\n";
  }
  write_byte_model(folder + "/model", 64, 2);
  std::ofstream(folder + "/chat.yaml") << fmt::format(R"(model: {{config: {0}/model/config.json}}
data:
  tokenizer: {0}/model
  train: {0}/train.jsonl
  eval_split: 50
  cache: {0}/cache
run_dir: {0}/run
seed: {1}
device: cpu
precision: fp32
seq_len: 256
batch: 4
epochs: 6
optim: {{lr: 3e-3, beta2: 0.98, schedule: wsd, decay: 0.3, warmup: 20, weight_decay: 0}}
eval: {{every: 100}}
)",
                                                      folder, seed);
}

}  // namespace megatrain
