// The op calls that a model's phases make, checked against arithmetic on the model's sizes.
#include "megatrain/model/step_notes.h"
#include "megatrain/model/parse_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "megatrain/model/presets.h"
#include "megatrain/ops/note_cost.h"

namespace megatrain {

namespace {

ModelConfig tiny() {
  nlohmann::json json = *preset_config("qwen2.5-0.5b");
  json["hidden_size"] = 64;
  json["intermediate_size"] = 96;
  json["num_hidden_layers"] = 3;
  json["num_attention_heads"] = 4;
  json["num_key_value_heads"] = 2;
  json["vocab_size"] = 160;
  return parse_model_config(json, "tiny");
}

double matmul_flops(const std::vector<OpNote>& notes) {
  double sum = 0;
  for (const OpNote& note : notes) {
    if (!std::holds_alternative<AttentionForward>(note) && !std::holds_alternative<AttentionBackward>(note))
      sum += note_flops(note);
  }
  return sum;
}

double attention_flops(const std::vector<OpNote>& notes) {
  double sum = 0;
  for (const OpNote& note : notes) sum += note_flops(note);
  return sum - matmul_flops(notes);
}

}  // namespace

TEST(StepNotes, ProductsOfAKeptStepAreSixFlopsAMatrixElementAndToken) {
  const ModelConfig model = tiny();
  const NotesShape shape{.dtype = DType::bf16, .sequences = 2, .seq_len = 24, .mlp_chunk = 20, .head_chunk = 13};
  const StepNotes notes = step_notes(model, shape);
  const double block =
      static_cast<double>(model.hidden * (model.qkv_dim() + 3 * model.ff) + model.q_dim() * model.hidden);
  const double matrices = static_cast<double>(model.layers) * block + static_cast<double>(model.vocab * model.hidden);
  EXPECT_EQ(matmul_flops(notes.keeping()), 6.0 * 48 * matrices);
  // recomputing repeats each block's matmuls except the last, whose output backward does not need
  const double repeated = static_cast<double>(model.layers) * (block - static_cast<double>(model.hidden * model.ff));
  EXPECT_EQ(matmul_flops(notes.recomputing()), 6.0 * 48 * matrices + 2.0 * 48 * repeated);
}

TEST(StepNotes, AttentionIsCausalPerSequence) {
  const ModelConfig model = tiny();
  const StepNotes notes = step_notes(model, {.sequences = 2, .seq_len = 24, .mlp_chunk = 48, .head_chunk = 48});
  const double forward = 4.0 * 2 * (24 * 25 / 2) * static_cast<double>(model.q_dim()) * 3;
  EXPECT_EQ(attention_flops(notes.keeping()), 3.5 * forward);
  EXPECT_EQ(attention_flops(notes.recomputing()), 4.5 * forward);
}

TEST(StepNotes, EveryBlockMakesTheSameCalls) {
  const StepNotes notes = step_notes(tiny(), {.sequences = 1, .seq_len = 16, .mlp_chunk = 16, .head_chunk = 16});
  std::map<std::string, int> count;
  for (const OpNote& note : notes.backward) ++count[note_text(note)];
  for (const auto& [text, times] : count) EXPECT_EQ(times % 3, 0) << text;
  const auto has_matmuls = [](const OpNote& note) { return note_flops(note) > 0; };
  EXPECT_EQ(std::count_if(notes.forward.begin(), notes.forward.end(), has_matmuls), 3 * 5);
}

TEST(StepNotes, AWindowMakesAnotherCall) {
  ModelConfig model = tiny();
  const NotesShape shape{.sequences = 1, .seq_len = 64, .mlp_chunk = 64, .head_chunk = 64};
  const double unlimited = attention_flops(step_notes(model, shape).forward);
  model.window[1] = 8;
  const StepNotes notes = step_notes(model, shape);
  EXPECT_LT(attention_flops(notes.forward), unlimited);
  std::map<std::string, int> count;
  for (const OpNote& note : notes.forward) {
    if (std::holds_alternative<AttentionForward>(note)) ++count[note_text(note)];
  }
  EXPECT_EQ(count.size(), 2u);
}

}  // namespace megatrain
