// The head by itself: losses first, then a backward with a scale per token, as a loss over two sequences needs.
#include "megatrain/model/head.h"
#include "megatrain/model/parse_config.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "megatrain/io/json.h"
#include "megatrain/model/embedding.h"
#include "tests/model/run_layer.h"

namespace megatrain {

namespace {

constexpr int64_t kTokens = 10, kFirst = 4, kHidden = 8, kVocab = 11;  // the first sequence has kFirst tokens
constexpr double kEps = 1e-6;

ModelConfig config_of(bool tied) {
  return parse_model_config({{"architectures", {"Qwen2ForCausalLM"}},
                             {"vocab_size", kVocab},
                             {"hidden_size", kHidden},
                             {"intermediate_size", 8},
                             {"num_hidden_layers", 1},
                             {"num_attention_heads", 2},
                             {"num_key_value_heads", 1},
                             {"rms_norm_eps", kEps},
                             {"tie_word_embeddings", tied}},
                            "config.json");
}

LayerLayout in_fp32(std::vector<TensorSpec> tensors) {
  for (TensorSpec& tensor : tensors) tensor.dtype = tensor.master = DType::f32;
  return make_layout(std::move(tensors));
}

// How much likelier the first sequence is than the second; and the loss of that. Both from losses per token.
double margin(const std::vector<double>& losses) {
  double sum = 0;
  for (int64_t t = 0; t < kTokens; ++t)
    sum += t < kFirst ? -losses[static_cast<size_t>(t)] : losses[static_cast<size_t>(t)];
  return sum;
}
double preference_loss(const std::vector<double>& losses) { return std::log1p(std::exp(-margin(losses))); }

class TwoPasses : public ::testing::TestWithParam<bool> {
 protected:
  TwoPasses() {
    for (int64_t t = 0; t < kTokens; ++t) labels_.push_back(static_cast<int32_t>((3 * t + 1) % kVocab));
    labels_[2] = kIgnoreLabel;
    for (const LayerLayout* layout : {&own_, &table_}) {
      weights_.push_back(drawn_floats(5 + weights_.size(), layout->elements, 0.5f));
      grads_.emplace_back(static_cast<size_t>(layout->state_elements));
    }
  }

  // Fills losses_ and, if scales are given, grad_x_ and grads_.
  void run(const float* token_scales) {
    const Head head(config_, {.dtype = DType::f32, .tokens = kTokens, .head_chunk = 3}, own_);
    std::vector<std::byte> workspace(static_cast<size_t>(head.workspace_bytes()));
    std::vector<int32_t> correct(kTokens);
    std::array<std::byte*, 2> weights;
    std::array<float*, 2> grads;
    for (size_t i = 0; i < 2; ++i) {
      weights[i] = reinterpret_cast<std::byte*>(weights_[i].data());
      grads[i] = grads_[i].data();
    }
    const View x = matrix(x_.data(), DType::f32, kTokens, kHidden);
    const MicroBatchView micro_batch{.tokens = kTokens, .labels = labels_.data()};
    const LossViews losses{.scale = 1, .token_scales = token_scales, .loss = losses_.data(), .correct = correct.data()};
    if (token_scales) {
      head.backward(*ops_, *stream_,
                    {.weights = weights,
                     .x = x,
                     .grad_x = matrix(grad_x_.data(), DType::f32, kTokens, kHidden),
                     .weight_grads = grads,
                     .accumulate = false,
                     .micro_batch = micro_batch,
                     .tables = nullptr,
                     .workspace = workspace.data(),
                     .losses = losses});
    } else {
      head.forward(*ops_, *stream_,
                   {.weights = weights,
                    .x = x,
                    .micro_batch = micro_batch,
                    .tables = nullptr,
                    .workspace = workspace.data(),
                    .losses = losses});
    }
    stream_->synchronize();
  }

  // Losses per token in float64.
  std::vector<double> reference(const std::vector<double>& x, const std::vector<double>& table) const {
    std::vector<double> losses(kTokens);
    for (int64_t t = 0; t < kTokens; ++t) {
      const int32_t label = labels_[static_cast<size_t>(t)];
      if (label == kIgnoreLabel) continue;
      const double* row = x.data() + t * kHidden;
      double squares = 0, sum = 0, target = 0;
      for (int64_t h = 0; h < kHidden; ++h) squares += row[h] * row[h];
      for (int64_t v = 0; v < kVocab; ++v) {
        double logit = 0;
        for (int64_t h = 0; h < kHidden; ++h)
          logit += row[h] / std::sqrt(squares / kHidden + kEps) *
                   static_cast<double>(weights_[0][static_cast<size_t>(h)]) *
                   table[static_cast<size_t>(v * kHidden + h)];
        sum += std::exp(logit);
        if (v == label) target = logit;
      }
      losses[static_cast<size_t>(t)] = std::log(sum) - target;
    }
    return losses;
  }

  const bool tied_ = GetParam();
  const ModelConfig config_ = config_of(tied_);
  const LayerLayout own_ = in_fp32(head_tensors(config_)), table_ = in_fp32(embedding_tensors(config_));
  const std::unique_ptr<Device> device_ = make_cpu_device();
  const std::unique_ptr<Ops> ops_ = make_cpu_ops({.threads = 1});
  const std::unique_ptr<Stream> stream_ = device_->make_stream("compute");
  std::vector<int32_t> labels_;
  std::vector<float> x_ = drawn_floats(1, kTokens*kHidden, 1), grad_x_ = std::vector<float>(x_.size()),
                     losses_ = std::vector<float>(kTokens);
  std::vector<std::vector<float>> weights_, grads_;  // the head's own, and the embedding's
};

}  // namespace

TEST_P(TwoPasses, GiveTheGradientOfALossOverTwoSequences) {
  run(nullptr);
  const std::vector<double> losses(losses_.begin(), losses_.end());
  const double slope = 1 / (1 + std::exp(margin(losses)));  // d(loss) / d(loss of one token of the first sequence)
  std::vector<float> scales(kTokens);
  for (int64_t t = 0; t < kTokens; ++t)
    scales[static_cast<size_t>(t)] = static_cast<float>(t < kFirst ? slope : -slope);
  run(scales.data());

  const size_t record = tied_ ? 1 : 0;
  const TensorSpec& tensor = tied_ ? table_.tensors[0] : own_.tensors[1];
  const auto first = weights_[record].begin() + tensor.offset;
  std::vector<double> x(x_.begin(), x_.end()), table(first, first + tensor.elements());
  for (int64_t t = 0; t < kTokens; ++t)
    ASSERT_NEAR(losses_[static_cast<size_t>(t)], reference(x, table)[static_cast<size_t>(t)], 1e-5);
  const auto expect_slopes = [&](std::vector<double>& of, const float* found) {
    for (size_t i = 0; i < of.size(); ++i) {
      constexpr double kStep = 1e-5;
      const double value = of[i];
      of[i] = value + kStep;
      const double above = preference_loss(reference(x, table));
      of[i] = value - kStep;
      const double below = preference_loss(reference(x, table));
      of[i] = value;
      ASSERT_NEAR(found[i], (above - below) / (2 * kStep), 1e-5) << i;
    }
  };
  expect_slopes(x, grad_x_.data());
  expect_slopes(table, grads_[record].data() + tensor.state_offset);
}

INSTANTIATE_TEST_SUITE_P(Head, TwoPasses, ::testing::Bool());

}  // namespace megatrain
