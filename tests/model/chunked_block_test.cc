// A block computed over ranges of its tokens: a token's values do not depend on the ranges, and weight gradients are
// the same sums in another order.
#include <gtest/gtest.h>

#include <cmath>

#include "megatrain/io/json_file.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/model.h"
#include "tests/model/run_layer.h"
#include "tests/support/places.h"
#include "tests/support/plan_changes.h"

namespace megatrain {

namespace {

ModelConfig golden(const std::string& name) {
  return parse_model_config(read_json_file(in_repository("tests/parity/goldens/") + name + "/model/config.json"), name);
}

// The first layer of a model.
LayerRun pass(const ModelConfig& config, int64_t chunk, Keep keep) {
  const Model model =
      make_model(config, {.dtype = DType::f32, .tokens = kLayerTokens, .mlp_chunk = chunk, .positions = kLayerTokens});
  return run_layer(model.layers.front(), model.make_tables(), keep);
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::fabs(static_cast<double>(value)));
  return most;
}

}  // namespace

TEST(ChunkedBlock, GivesTheSameOutputsAndGradientsAsWhole) {
  // biases, q/k norms, norms after matmuls with windows, fused tensors with partial rotary, experts, no norms before
  // the branches, RoPE in pairs, queries that grow
  for (const char* name : {"qwen2_tied", "qwen3_window", "gemma3_local", "phi3_long", "qwen3_moe", "gpt_oss", "olmo2",
                           "glm4", "ministral3"}) {
    const ModelConfig config = golden(name);
    const Model model = make_model(config, {.dtype = DType::f32, .tokens = kLayerTokens, .positions = kLayerTokens});
    const std::vector<KeepLevel> levels = model.layers.front().phases.front()->keep_levels();
    const LayerRun first = pass(config, 0, level_named(levels, levels.front().name));
    for (const KeepLevel& level : levels) {
      const Keep keep = level_named(levels, level.name);
      const LayerRun whole = pass(config, 0, keep);
      EXPECT_EQ(whole.grad_x, first.grad_x) << name << ", keeps " << level.name;
      EXPECT_EQ(whole.grads, first.grads) << name << ", keeps " << level.name;
      for (const int64_t chunk : {7, 20, 39, 40}) {
        SCOPED_TRACE(std::string(name) + ", keeps " + level.name + ", chunks of " + std::to_string(chunk));
        const LayerRun cut = pass(config, chunk, keep);
        EXPECT_EQ(cut.y, whole.y);
        EXPECT_EQ(cut.grad_x, whole.grad_x);
        for (size_t r = 0; r < whole.grads.size(); ++r) {
          const double bound = 1e-6 * largest(whole.grads[r]);
          for (size_t i = 0; i < whole.grads[r].size(); ++i)
            ASSERT_NEAR(cut.grads[r][i], whole.grads[r][i], bound) << "record " << r << " element " << i;
          if (chunk == kLayerTokens) {
            EXPECT_EQ(cut.grads[r], whole.grads[r]);
          }
        }
      }
    }
  }
}

TEST(ChunkedBlock, NeedsMemoryByTokenForAttentionAlone) {
  const ModelConfig config = golden("qwen2_tied");
  const auto workspace = [&](int64_t tokens) {
    const Model model =
        make_model(config, {.dtype = DType::bf16, .tokens = tokens, .mlp_chunk = 1024, .positions = tokens});
    return model.layers.front().phases.front()->workspace_bytes();
  };
  // q, k, v and attention's output with their gradients in bf16; log-sum-exps and the inverse norm in fp32
  const int64_t by_token = 2 * 2 * (config.qkv_dim() + config.q_dim()) + 4 * (config.heads + 1);
  EXPECT_EQ(workspace(1 << 19) - workspace(1 << 18), by_token * (1 << 18));
}

}  // namespace megatrain
