// Layouts and random initialisation.
#include "megatrain/model/model.h"
#include "megatrain/model/parse_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "megatrain/io/json.h"

namespace megatrain {

namespace {

ModelConfig small(bool tied = false) {
  return parse_model_config({{"architectures", {"Qwen2ForCausalLM"}},
                             {"vocab_size", 50},
                             {"hidden_size", 24},
                             {"intermediate_size", 36},
                             {"num_hidden_layers", 2},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 2},
                             {"initializer_range", 0.05},
                             {"tie_word_embeddings", tied}},
                            "config.json");
}

TensorSpec matrix_named(const std::string& name, int64_t rows, int64_t cols) {
  return {.name = name, .rows = rows, .cols = cols};
}

std::vector<float> drawn(const ModelConfig& config, const TensorSpec& tensor, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  init_tensor(config, tensor, seed, 0, tensor.elements(), values.data());
  return values;
}

}  // namespace

TEST(Layers, RecordsHoldEveryHuggingFaceNameOnce) {
  std::set<std::string> names;
  const std::vector<LayerLayout> layouts = model_layouts(small());
  ASSERT_EQ(layouts.size(), 4u);
  for (const LayerLayout& layout : layouts) {
    for (const TensorSpec& tensor : layout.tensors) EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
  }
  EXPECT_EQ(names.size(), 1u + 2 * 12 + 2);
  for (const char* name : {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.bias",
                           "model.layers.1.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

TEST(Layers, TiedModelsHaveNoHeadMatrix) {
  EXPECT_EQ(head_tensors(small(true)).size(), 1u);
  EXPECT_EQ(head_tensors(small(false)).size(), 2u);
}

TEST(Layers, WeightDecayIsForMatricesOnly) {
  for (const LayerLayout& layout : model_layouts(small())) {
    for (const TensorSpec& tensor : layout.tensors) EXPECT_EQ(tensor.decays(), tensor.rows > 1) << tensor.name;
  }
}

TEST(Layers, TensorsOfOneOperandLieBackToBack) {
  const LayerLayout layout = model_layouts(small())[1];
  int64_t fused = 0;
  for (size_t i = 1; i < layout.tensors.size(); ++i) {
    const TensorSpec &before = layout.tensors[i - 1], &tensor = layout.tensors[i];
    EXPECT_GE(tensor.offset, before.offset + before.elements());
    if (tensor.operand == before.operand) {
      ++fused;
      EXPECT_EQ(tensor.offset, before.offset + before.elements()) << tensor.name;
    } else {
      EXPECT_EQ(tensor.offset % kTensorAlign, 0) << tensor.name;
    }
  }
  EXPECT_EQ(fused, 5);  // k, v, their biases, up
}

TEST(Init, NormsAreOneAndBiasesZero) {
  const ModelConfig config = small();
  const LayerLayout layout = model_layouts(config)[1];
  for (const TensorSpec& tensor : layout.tensors) {
    if (tensor.rows > 1) continue;
    for (const float value : drawn(config, tensor, 1))
      EXPECT_EQ(value, tensor.name.ends_with("norm.weight") ? 1.0f : 0.0f) << tensor.name;
  }
}

TEST(Init, ElementsDoNotDependOnThePieceTheyAreDrawnIn) {
  const ModelConfig config = small();
  const TensorSpec tensor = matrix_named("model.layers.0.mlp.up_proj.weight", 37, 11);
  const std::vector<float> whole = drawn(config, tensor, 9);
  for (const int64_t piece : {1, 2, 3, 7, 64}) {
    std::vector<float> pieces(whole.size());
    for (int64_t at = tensor.elements() / piece * piece; at >= 0; at -= piece) {  // from the end
      init_tensor(config, tensor, 9, at, std::min(piece, tensor.elements() - at), pieces.data() + at);
    }
    EXPECT_EQ(pieces, whole) << "pieces of " << piece;
  }
}

TEST(Init, MatricesAreNormalWithTheConfiguredWidth) {
  const ModelConfig config = small();
  const std::vector<float> values = drawn(config, matrix_named("w", 1000, 400), 3);
  const double n = static_cast<double>(values.size());
  double sum = 0, squares = 0, fourth = 0;
  for (const double v : values) {
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
  }
  const double variance = squares / n;
  EXPECT_NEAR(sum / n, 0, 5 * 0.05 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(variance), 0.05, 0.05 * 5 / std::sqrt(2 * n));
  EXPECT_NEAR(fourth / n / (variance * variance), 3, 0.05);
}

TEST(Init, SeedsAndNamesGiveDifferentNumbers) {
  const ModelConfig config = small();
  const TensorSpec a = matrix_named("a", 8, 8), b = matrix_named("b", 8, 8);
  EXPECT_EQ(drawn(config, a, 1), drawn(config, a, 1));
  EXPECT_NE(drawn(config, a, 1), drawn(config, a, 2));
  EXPECT_NE(drawn(config, a, 1), drawn(config, b, 1));
}

}  // namespace megatrain
