// A block over ranges of its tokens: what a token is computed to does not depend on the ranges, and weight gradients
// are the same sums in another order.
#include <gtest/gtest.h>

#include <cmath>

#include "megatrain/base/rng.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/model.h"
#include "tests/places.h"

namespace megatrain {

namespace {

constexpr int64_t kTokens = 40;

ModelConfig golden(const std::string& name) {
  return parse_model_config(read_json_file(in_repository("tests/parity/goldens/") + name + "/model/config.json"), name);
}

// The first layer of a model, forward and backward once, in fp32; two documents.
struct Passed {
  std::vector<float> y, grad_x;
  std::vector<std::vector<float>> grads;  // of each record
  int64_t workspace_bytes;
};

Passed pass(const ModelConfig& config, int64_t chunk, Keep keep) {
  const Model model =
      make_model(config, {.dtype = DType::f32, .tokens = kTokens, .mlp_chunk = chunk, .positions = kTokens});
  const Layer& layer = model.layers.front();
  const Phase& phase = *layer.phases.front();
  const std::unique_ptr<Device> device = make_cpu_device();
  const std::unique_ptr<Ops> ops = make_cpu_ops({.threads = 1});
  const std::unique_ptr<Stream> stream = device->make_stream("compute");
  const auto drawn = [](uint64_t purpose, int64_t count, float scale) {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = scale * random_normal_pair(7, purpose, i)[0];
    return values;
  };
  const int64_t width = phase.in_width();
  std::vector<float> x = drawn(1, kTokens * width, 1), grad_y = drawn(2, kTokens * width, 1);
  Passed passed{.y = x, .grad_x = grad_y, .grads = {}, .workspace_bytes = phase.workspace_bytes()};
  std::vector<std::vector<float>> weights;
  std::vector<std::byte*> slabs;
  std::vector<float*> grads;
  for (const LayerLayout& record : layer.records) {
    weights.push_back(drawn(10 + weights.size(), record.elements, 0.1f));
    passed.grads.push_back(drawn(20 + weights.size(), record.state_elements, 1));  // added to
  }
  for (size_t r = 0; r < weights.size(); ++r) {
    slabs.push_back(reinterpret_cast<std::byte*>(weights[r].data()));
    grads.push_back(passed.grads[r].data());
  }
  const std::vector<float> tables = model.make_tables();
  const std::vector<int32_t> begin = {0, 27, kTokens};
  std::vector<int32_t> positions;
  for (size_t d = 0; d + 1 < begin.size(); ++d) {
    for (int32_t p = 0; p < begin[d + 1] - begin[d]; ++p) positions.push_back(p);
  }
  const MicroBatchView micro_batch{
      .tokens = kTokens,
      .positions = positions.data(),
      .documents = {.begin = begin.data(), .host_begin = begin.data(), .count = 2, .longest = 27, .uniform = false}};
  std::vector<std::byte> work(static_cast<size_t>(phase.workspace_bytes())),
      kept(static_cast<size_t>(phase.kept_bytes(keep)));
  const auto rows = [&](std::vector<float>& values) { return matrix(values.data(), DType::f32, kTokens, width); };
  phase.forward(*ops, *stream,
                {.weights = slabs,
                 .x = rows(x),
                 .y = rows(passed.y),
                 .micro_batch = micro_batch,
                 .tables = tables.data(),
                 .workspace = work.data(),
                 .keep = keep,
                 .kept = kept.data()});
  const Phase::Backward backward{.weights = slabs,
                                 .x = rows(x),
                                 .grad_y = rows(grad_y),
                                 .grad_x = rows(passed.grad_x),
                                 .weight_grads = grads,
                                 .accumulate = true,
                                 .micro_batch = micro_batch,
                                 .tables = tables.data(),
                                 .workspace = work.data(),
                                 .keep = keep,
                                 .kept = kept.data()};
  phase.backward(*ops, *stream, backward);
  stream->synchronize();
  return passed;
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::fabs(static_cast<double>(value)));
  return most;
}

}  // namespace

TEST(ChunkedBlock, GivesTheSameOutputsAndGradientsAsWhole) {
  // biases, q/k norms, norms behind products with windows, fused tensors with partial rotary, experts
  for (const char* name : {"qwen2_tied", "qwen3_window", "gemma3_local", "phi3_long", "qwen3_moe", "gpt_oss"}) {
    const ModelConfig config = golden(name);
    for (const Keep keep : kKeeps) {
      const Passed whole = pass(config, 0, keep);
      for (const int64_t chunk : {7, 20, 39, 40}) {
        SCOPED_TRACE(std::string(name) + ", keeps " + keep_name(keep) + ", chunks of " + std::to_string(chunk));
        const Passed cut = pass(config, chunk, keep);
        EXPECT_EQ(cut.y, whole.y);
        EXPECT_EQ(cut.grad_x, whole.grad_x);
        for (size_t r = 0; r < whole.grads.size(); ++r) {
          const double bound = 1e-6 * largest(whole.grads[r]);
          for (size_t i = 0; i < whole.grads[r].size(); ++i)
            ASSERT_NEAR(cut.grads[r][i], whole.grads[r][i], bound) << "record " << r << " element " << i;
          if (chunk == kTokens) {
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
