// The layer interface, exercised by a layer with two phases over two records.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "megatrain/base/rng.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/io/json.h"
#include "megatrain/model/phase_cost.h"
#include "megatrain/ops/note_cost.h"
#include "tests/support/plan_changes.h"
#include "tests/support/toy_layer.h"

namespace megatrain {

namespace {

constexpr int64_t kTokens = 5, kHidden = 8, kWidth = 6;

std::vector<float> drawn(uint64_t purpose, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal_pair(11, purpose, i)[0];
  return values;
}

// The toy layer's maths in double.
struct Reference {
  std::vector<double> x, norm, gate_up, down, towards;

  // sum(y * towards)
  double loss() const {
    double sum = 0;
    for (int64_t t = 0; t < kTokens; ++t) {
      const double* row = x.data() + t * kHidden;
      double squares = 0;
      for (int64_t i = 0; i < kHidden; ++i) squares += row[i] * row[i];
      const double inverse = 1 / std::sqrt(squares / kHidden + 1e-6);
      std::array<double, 2 * kWidth> a{};
      for (int64_t n = 0; n < 2 * kWidth; ++n) {
        for (int64_t i = 0; i < kHidden; ++i) {
          a[static_cast<size_t>(n)] +=
              gate_up[static_cast<size_t>(n * kHidden + i)] * row[i] * inverse * norm[static_cast<size_t>(i)];
        }
      }
      for (int64_t n = 0; n < kHidden; ++n) {
        for (int64_t i = 0; i < kWidth; ++i) {
          const double gate = a[static_cast<size_t>(i)], up = a[static_cast<size_t>(kWidth + i)];
          sum += towards[static_cast<size_t>(t * kHidden + n)] * down[static_cast<size_t>(n * kWidth + i)] * gate /
                 (1 + std::exp(-gate)) * up;
        }
      }
    }
    return sum;
  }

  std::vector<double> gradient(std::vector<double> Reference::*of) {
    std::vector<double> result;
    for (size_t i = 0; i < (this->*of).size(); ++i) {
      const double value = (this->*of)[i], step = 1e-5;
      (this->*of)[i] = value + step;
      const double above = loss();
      (this->*of)[i] = value - step;
      result.push_back((above - loss()) / (2 * step));
      (this->*of)[i] = value;
    }
    return result;
  }
};

std::vector<double> wide(const std::vector<float>& values) { return {values.begin(), values.end()}; }

// Both phases forward, then backward, in fp32.
struct Toy {
  ModelShape shape{.dtype = DType::f32, .tokens = kTokens};
  Layer layer = toy::make_layer("toy", kHidden, kWidth, shape);
  std::unique_ptr<Device> device = make_cpu_device();
  std::unique_ptr<Ops> ops = make_cpu_ops({.threads = 1});
  std::unique_ptr<Stream> stream = device->make_stream("compute");
  std::vector<float> x = drawn(1, kTokens*kHidden), middle = std::vector<float>(kTokens * 2 * kWidth),
                     y = std::vector<float>(kTokens * kHidden), towards = drawn(5, kTokens*kHidden);
  std::vector<float> grad_middle = middle, grad_x = x;
  std::vector<std::vector<float>> weights, grads;
  MicroBatchView micro{};

  Toy() {
    for (const LayerLayout& record : layer.records) {
      weights.emplace_back(static_cast<size_t>(record.elements));
      grads.emplace_back(static_cast<size_t>(record.state_elements));
      for (const TensorSpec& tensor : record.tensors) {
        const std::vector<float> values = drawn(static_cast<uint64_t>(10 + tensor.operand), tensor.elements());
        std::copy(values.begin(), values.end(), weights.back().begin() + tensor.offset);
      }
    }
  }

  View rows(std::vector<float>& values) {
    return matrix(values.data(), DType::f32, kTokens, std::ssize(values) / kTokens);
  }
  std::vector<float> tensor(const std::vector<std::vector<float>>& slabs, size_t record, size_t index) const {
    const TensorSpec& spec = layer.records[record].tensors[index];
    const auto begin = slabs[record].begin() + spec.offset;
    return {begin, begin + spec.elements()};
  }

  void run(Keep keep) {
    std::vector<std::vector<std::byte>> work, kept;
    for (const auto& phase : layer.phases) {
      work.emplace_back(static_cast<size_t>(phase->workspace_bytes()));
      kept.emplace_back(static_cast<size_t>(phase->keep_levels()[keep_index(keep)].bytes));
    }
    const View in[] = {rows(x), rows(middle)}, out[] = {rows(middle), rows(y)};
    const View grad_in[] = {rows(grad_x), rows(grad_middle)}, grad_out[] = {rows(grad_middle), rows(towards)};
    for (const size_t p : {0, 1}) {
      std::byte* const slab[] = {reinterpret_cast<std::byte*>(weights[p].data())};
      layer.phases[p]->forward(*ops, *stream,
                               {.weights = slab,
                                .x = in[p],
                                .y = out[p],
                                .micro_batch = micro,
                                .tables = nullptr,
                                .workspace = work[p].data(),
                                .keep = keep,
                                .kept = kept[p].data()});
    }
    for (const size_t p : {1, 0}) {
      std::byte* const slab[] = {reinterpret_cast<std::byte*>(weights[p].data())};
      float* const grad[] = {grads[p].data()};
      layer.phases[p]->backward(*ops, *stream,
                                {.weights = slab,
                                 .x = in[p],
                                 .grad_y = grad_out[p],
                                 .grad_x = grad_in[p],
                                 .weight_grads = grad,
                                 .accumulate = false,
                                 .micro_batch = micro,
                                 .tables = nullptr,
                                 .workspace = work[p].data(),
                                 .keep = keep,
                                 .kept = kept[p].data()});
    }
    stream->synchronize();
  }
};

void expect_near(const std::vector<float>& found, const std::vector<double>& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-6 * largest) << what << " " << i;
}

ModelConfig dense(int64_t window = 0) {
  return parse_model_config({{"architectures", {"Qwen3ForCausalLM"}},
                             {"vocab_size", 61},
                             {"hidden_size", 24},
                             {"intermediate_size", 40},
                             {"num_hidden_layers", 4},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 2},
                             {"use_sliding_window", window > 0},
                             {"max_window_layers", 1},
                             {"sliding_window", window > 0 ? nlohmann::json(window) : nlohmann::json()},
                             {"head_dim", 8}},
                            "config.json");
}

}  // namespace

TEST(ToyLayer, BackwardIsTheDerivativeOfForwardInDouble) {
  Toy toy;
  toy.run(Keep::nothing);
  Reference reference{.x = wide(toy.x),
                      .norm = wide(toy.tensor(toy.weights, 0, 0)),
                      .gate_up = wide(toy.tensor(toy.weights, 0, 1)),
                      .down = wide(toy.tensor(toy.weights, 1, 0)),
                      .towards = wide(toy.towards)};
  expect_near(toy.grad_x, reference.gradient(&Reference::x), "x");
  expect_near(toy.tensor(toy.grads, 0, 0), reference.gradient(&Reference::norm), "norm");
  expect_near(toy.tensor(toy.grads, 0, 1), reference.gradient(&Reference::gate_up), "gate_up");
  expect_near(toy.tensor(toy.grads, 1, 0), reference.gradient(&Reference::down), "down");
}

TEST(ToyLayer, WhatIsKeptChangesNoBit) {
  Toy none;
  none.run(Keep::nothing);
  Toy kept;
  kept.run(toy::kEverything);
  EXPECT_EQ(kept.y, none.y);
  EXPECT_EQ(kept.grad_x, none.grad_x);
  EXPECT_EQ(kept.grads, none.grads);
}

TEST(Model, NumbersRecordsAndPhasesInTheOrderOfItsLayers) {
  const ModelConfig config = dense();
  const Model plain = make_model(config, {.tokens = 16, .positions = 16});
  EXPECT_EQ(plain.records(), 6);
  EXPECT_EQ(plain.phases().size(), 6u);
  for (size_t p = 0; p < 6; ++p) EXPECT_EQ(plain.phases()[p].records, std::vector<int64_t>{static_cast<int64_t>(p)});

  const Model mixed = toy::make_model(config, {.tokens = 16, .positions = 16});  // dense, toy, dense, toy
  EXPECT_EQ(mixed.records(), 8);
  EXPECT_EQ(mixed.phases().size(), 8u);
  ASSERT_EQ(mixed.layouts().size(), 8u);
  EXPECT_EQ(mixed.layouts()[2].tensors.front().name, "toy.1.norm.weight");
  EXPECT_EQ(mixed.layouts()[6].tensors.front().name, "toy.3.down.weight");
  EXPECT_EQ(mixed.phases()[3].records, std::vector<int64_t>{3});
  EXPECT_EQ(mixed.phases()[3].phase->in_width(), 36);
  EXPECT_NE(mixed.layouts()[2].elements, mixed.layouts()[3].elements);
}

TEST(Model, BeginsWithThePhaseThatLooksUpItsTableAndEndsWithTheOneThatHasTheLosses) {
  for (const bool tied : {false, true}) {
    ModelConfig config = dense();
    config.tied = tied;
    const Model model = make_model(config, {.tokens = 16, .positions = 16});
    const std::vector<Model::NumberedPhase> phases = model.phases();
    for (size_t p = 0; p < phases.size(); ++p) {
      SCOPED_TRACE(p);
      const bool first = p == 0, last = p + 1 == phases.size();
      EXPECT_EQ(phases[p].looks_up, first ? 0 : -1);
      EXPECT_EQ(phases[p].phase->ends(), last);
      EXPECT_EQ(phases[p].phase->in_width(), first ? 0 : config.hidden);
      EXPECT_EQ(phases[p].phase->out_width(), last ? 0 : config.hidden);
      EXPECT_EQ(phases[p].phase->decodes(), !first && !last);
    }
    EXPECT_EQ(phases.back().records, tied ? (std::vector<int64_t>{5, 0}) : std::vector<int64_t>{5});
  }
}

TEST(PhaseCost, OfADenseBlockIsArithmeticOnItsSizes) {
  const ModelConfig c = dense();
  const NotesShape shape{.dtype = DType::bf16, .sequences = 2, .seq_len = 24, .mlp_chunk = 20};
  const Model model = make_model(c, {.dtype = shape.dtype, .tokens = 48, .mlp_chunk = 20, .positions = 24});
  const PhaseCost cost = phase_cost(*model.layers.front().phases.front(), shape);
  const double mlp = static_cast<double>(c.hidden * c.ff), tokens = 48;
  const double matrices = static_cast<double>(c.hidden * (c.qkv_dim() + c.q_dim())) + 3 * mlp;
  const double attention = 4.0 * 2 * (24 * 25 / 2) * static_cast<double>(c.q_dim());
  EXPECT_EQ(cost.forward.flops, 2 * tokens * matrices + attention);
  EXPECT_EQ(cost.backward.flops, 4 * tokens * matrices + 2.5 * attention);
  const std::vector<KeepLevel> levels = model.layers.front().phases.front()->keep_levels();
  const auto at = [&](const char* level) { return cost.levels[keep_index(level_named(levels, level))]; };
  const auto recomputed = [&](const char* level) { return at(level).recomputed; };
  EXPECT_EQ(recomputed("nothing").flops, cost.forward.flops - 2 * tokens * mlp);  // all but the last matmul
  EXPECT_EQ(recomputed("outputs").flops, recomputed("nothing").flops - attention);
  EXPECT_EQ(recomputed("attention").flops, 4 * tokens * mlp);
  EXPECT_EQ(recomputed("products").flops, 0);
  EXPECT_EQ(recomputed("everything").flops, 0);
  EXPECT_EQ(recomputed("everything").bytes, 0);
  // two norms, each reading and writing (T, H) and reading its weight once per call, and SwiGLU's output
  const double norms = 4 * 2 * tokens * static_cast<double>(c.hidden) + 2 * static_cast<double>(c.hidden) * 4;
  EXPECT_NEAR(recomputed("products").bytes, norms + 2 * tokens * static_cast<double>(c.ff), 1024);
  EXPECT_EQ(recomputed("attention").bytes, recomputed("products").bytes);
  EXPECT_GT(recomputed("nothing").bytes, recomputed("attention").bytes);
  // a repeated forward
  const auto spared = [&](const char* level) { return at(level).spared.flops; };
  const double qkv = 2 * tokens * static_cast<double>(c.hidden * c.qkv_dim()),
               out = 2 * tokens * static_cast<double>(c.hidden * c.q_dim());
  EXPECT_EQ(spared("nothing"), 0);
  EXPECT_EQ(spared("outputs"), qkv + attention);
  EXPECT_EQ(spared("attention"), qkv + attention + out);
  EXPECT_EQ(spared("products"), qkv + attention + out + 4 * tokens * mlp);
  EXPECT_EQ(spared("everything"), spared("products"));
}

TEST(PhaseCost, AWindowAndFrozenTensorsCostLess) {
  const NotesShape shape{.sequences = 1, .seq_len = 32};
  const ModelShape built{.dtype = shape.dtype, .tokens = 32, .positions = 32};
  const Model windowed = make_model(dense(4), built);
  const PhaseCost full = phase_cost(*windowed.layers[0].phases[0], shape),
                  window = phase_cost(*windowed.layers[1].phases[0], shape);
  EXPECT_LT(window.forward.flops, full.forward.flops);
  EXPECT_LT(window.backward.flops, full.backward.flops);
  const Model frozen = make_model(dense(), built, {.freeze = {"*.0.mlp.*"}});
  const PhaseCost some = phase_cost(*frozen.layers[0].phases[0], shape);
  EXPECT_EQ(some.forward.flops, full.forward.flops);
  EXPECT_EQ(some.backward.flops, full.backward.flops - 2.0 * 32 * 3 * 24 * 40);
}

TEST(PhaseCost, OfTheToyCountsItsOwnProducts) {
  const Layer layer = toy::make_layer("toy", kHidden, kWidth, {.dtype = DType::bf16, .tokens = 32});
  const NotesShape shape{.sequences = 1, .seq_len = 32};
  const PhaseCost first = phase_cost(*layer.phases[0], shape), second = phase_cost(*layer.phases[1], shape);
  EXPECT_EQ(first.forward.flops, 2.0 * 32 * kHidden * 2 * kWidth);
  EXPECT_EQ(second.forward.flops, 2.0 * 32 * kHidden * kWidth);
  EXPECT_EQ(second.backward.flops, 2 * second.forward.flops);
}

}  // namespace megatrain
