// The interface for mixers and channels, exercised by a second kind of mixer (recurrent_mixer.h): alone, beside
// attention, and in phases of its own, in training and in generation.
#include "megatrain/model/layers/block.h"
#include "megatrain/model/parse_config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "megatrain/io/json_file.h"
#include "megatrain/model/layers/channels/mlp.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/model.h"
#include "megatrain/model/trained/adapter.h"
#include "tests/support/recurrent_mixer.h"
#include "tests/model/run_layer.h"
#include "tests/support/places.h"

namespace megatrain {

namespace {

constexpr int64_t kHidden = 12, kWidth = 5, kEvery = 4;

const toy::Recurrent::Shape kRecurrent{.dtype = DType::f32, .tokens = kLayerTokens, .every = kEvery};

LayerLayout in_fp32(std::vector<TensorSpec> tensors) {
  for (TensorSpec& tensor : tensors) tensor.dtype = tensor.master = DType::f32;
  return make_layout(std::move(tensors));
}

BlockShape shape_of(int64_t chunk) {
  return {.hidden = kHidden, .norm = {.eps = 1e-6f}, .dtype = DType::f32, .tokens = kLayerTokens, .chunk = chunk};
}

Block::Mixers recurrent(const LayerLayout& record) {
  Block::Mixers mixers;
  mixers.push_back(std::make_unique<toy::Recurrent>(kRecurrent, record));
  return mixers;
}

// A layer whose only branch is the recurrent mixer.
Layer recurrent_layer(int64_t chunk) {
  Layer layer;
  layer.records.push_back(in_fp32(toy::recurrent_tensors("toy", kHidden, kWidth)));
  layer.phases.push_back(
      std::make_unique<Block>(shape_of(chunk), layer.records[0], recurrent(layer.records[0]), Block::Channels{}));
  return layer;
}

// The same in float64, token by token.
class InDouble {
 public:
  explicit InDouble(const LayerLayout& record) : record_(record) {}

  std::vector<double> y(const std::vector<double>& weights, const std::vector<double>& x) const {
    const auto at = [&](const char* name, int64_t index) {
      for (const TensorSpec& tensor : record_.tensors) {
        if (tensor.name == std::string("toy.") + name) return weights[static_cast<size_t>(tensor.offset + index)];
      }
      ADD_FAILURE() << name;
      return 0.0;
    };
    const auto sigmoid = [](double value) { return 1 / (1 + std::exp(-value)); };
    const std::vector<int32_t> positions = layer_positions();
    std::vector<double> out = x, state(kWidth), v1(kWidth), v2(kWidth);
    for (size_t t = 0; t < positions.size(); ++t) {
      if (positions[t] == 0) state = v1 = v2 = std::vector<double>(kWidth);
      const double* row = x.data() + t * kHidden;
      double squares = 0;
      for (int64_t h = 0; h < kHidden; ++h) squares += row[h] * row[h];
      const auto projected = [&](int64_t column) {
        double sum = 0;
        for (int64_t h = 0; h < kHidden; ++h)
          sum += at("in.weight", column * kHidden + h) * row[h] / std::sqrt(squares / kHidden + double{1e-6f}) *
                 at("norm.weight", h);
        return sum;
      };
      for (int64_t c = 0; c < kWidth; ++c) {
        const size_t i = static_cast<size_t>(c);
        const double v = projected(c), keep = sigmoid(projected(kWidth + c) + at("decay", c));
        const double conv =
            at("conv.weight", 3 * c) * v + at("conv.weight", 3 * c + 1) * v1[i] + at("conv.weight", 3 * c + 2) * v2[i];
        state[i] = keep * state[i] + (1 - keep) * conv;
        v2[i] = v1[i];
        v1[i] = v;
        const double mixed = state[i] * sigmoid(projected(2 * kWidth + c));
        for (int64_t h = 0; h < kHidden; ++h)
          out[t * kHidden + static_cast<size_t>(h)] += at("out.weight", h * kWidth + c) * mixed;
      }
    }
    return out;
  }

 private:
  const LayerLayout& record_;
};

std::vector<double> widened(const std::vector<float>& values) { return {values.begin(), values.end()}; }

double dot(const std::vector<double>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * static_cast<double>(b[i]);
  return sum;
}

void expect_near(const std::vector<float>& found, const std::vector<double>& expected, double bound) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], bound) << "element " << i;
}

void expect_equal(const LayerRun& found, const LayerRun& expected) {
  EXPECT_EQ(found.y, expected.y);
  EXPECT_EQ(found.grad_x, expected.grad_x);
  EXPECT_EQ(found.grads, expected.grads);
}

}  // namespace

TEST(RecurrentMixer, IsALoopInFloat64) {
  const Layer layer = recurrent_layer(kLayerTokens);
  const LayerRun run = run_layer(layer, {});
  const InDouble reference(layer.records[0]);
  std::vector<double> weights = widened(run.weights[0]), x = widened(run.x);
  expect_near(run.y, reference.y(weights, x), 1e-5);
  // gradients by central differences of <y, grad_y>, whose own error is about 1e-9
  const auto slopes = [&](std::vector<double>& of, size_t count) {
    constexpr double kStep = 1e-4;
    std::vector<double> list;
    for (size_t i = 0; i < count; ++i) {
      const double value = of[i];
      of[i] = value + kStep;
      const double above = dot(reference.y(weights, x), run.grad_y);
      of[i] = value - kStep;
      list.push_back((above - dot(reference.y(weights, x), run.grad_y)) / (2 * kStep));
      of[i] = value;
    }
    return list;
  };
  expect_near(run.grad_x, slopes(x, x.size()), 2e-5);
  const std::vector<double> weight_slopes = slopes(weights, weights.size());
  for (const TensorSpec& tensor : layer.records[0].tensors) {
    for (int64_t e = 0; e < tensor.elements(); ++e) {
      const size_t at = static_cast<size_t>(tensor.state_offset + e), weight = static_cast<size_t>(tensor.offset + e);
      EXPECT_NEAR(run.grads[0][at] - run.first[0][at], weight_slopes[weight], 2e-4) << tensor.name << " " << e;
    }
  }
}

TEST(RecurrentMixer, HasAdaptersOnItsMatmulsAndNoneOnItsConvolution) {
  const AdapterRules rules{.rank = 2, .alpha = 3};
  Layer layer;
  layer.records = {in_fp32(toy::recurrent_tensors("toy", kHidden, kWidth)),
                   in_fp32(adapter_tensors(rules, toy::recurrent_tensors("toy", kHidden, kWidth)))};
  const LayerLayout& record = layer.records[0];
  const LayerLayout* adapters = adapters_among(layer.records);
  ASSERT_EQ(adapters, &layer.records[1]);
  EXPECT_EQ(adapted_modules({adapters}), (std::set<std::string>{"toy.in", "toy.out"}));
  const LinearTensors from(record, adapters);
  Block::Mixers mixers;
  mixers.push_back(std::make_unique<toy::Recurrent>(kRecurrent, from));
  layer.phases.push_back(std::make_unique<Block>(shape_of(7), from, std::move(mixers), Block::Channels{}));
  const LayerRun run = run_layer(layer, {});

  const InDouble reference(record);
  const std::vector<double> x = widened(run.x), base = widened(run.weights[0]);
  std::vector<double> halves = widened(run.weights[1]);
  AdapterIndex index;
  index.add(*adapters);
  const auto y = [&] {
    std::vector<double> merged = base;
    for (const TensorSpec& tensor : record.tensors) {
      const AdapterPair pair = index.of(tensor);
      for (int64_t e = 0; pair.a && e < tensor.elements(); ++e) {
        double sum = 0;
        for (int64_t r = 0; r < rules.rank; ++r)
          sum += halves[static_cast<size_t>(pair.b->offset + e / tensor.cols * rules.rank + r)] *
                 halves[static_cast<size_t>(pair.a->offset + r * tensor.cols + e % tensor.cols)];
        merged[static_cast<size_t>(tensor.offset + e)] += rules.alpha / static_cast<double>(rules.rank) * sum;
      }
    }
    return reference.y(merged, x);
  };
  expect_near(run.y, y(), 1e-5);
  constexpr double kStep = 1e-4;
  for (const TensorSpec& half : adapters->tensors) {
    for (int64_t e = 0; e < half.elements(); ++e) {
      double& value = halves[static_cast<size_t>(half.offset + e)];
      const double before = value;
      value = before + kStep;
      const double above = dot(y(), run.grad_y);
      value = before - kStep;
      const double slope = (above - dot(y(), run.grad_y)) / (2 * kStep);
      value = before;
      const size_t at = static_cast<size_t>(half.state_offset + e);
      EXPECT_NEAR(run.grads[1][at] - run.first[1][at], slope, 2e-4) << half.name << " " << e;
    }
  }
}

TEST(RecurrentMixer, GivesTheSameBitsWhateverIsKeptAndRangesThatChangeNoOutput) {
  const LayerRun expected = run_layer(recurrent_layer(kLayerTokens), {});
  const std::vector<KeepLevel> levels = recurrent_layer(kLayerTokens).phases[0]->keep_levels();
  ASSERT_EQ(levels.size(), 3u);
  for (int32_t level = 0; level < 3; ++level) {
    const Keep keep{level};
    SCOPED_TRACE(levels[keep_index(keep)].name);
    expect_equal(run_layer(recurrent_layer(kLayerTokens), {}, keep), expected);
    for (const int64_t chunk : {7, 20, 39}) {
      const LayerRun cut = run_layer(recurrent_layer(chunk), {}, keep);
      EXPECT_EQ(cut.y, expected.y);
      EXPECT_EQ(cut.grad_x, expected.grad_x);
    }
  }
}

TEST(RecurrentMixer, KeepsStatesOfEveryFewTokensAlone) {
  const Layer layer = recurrent_layer(kLayerTokens);
  const std::vector<KeepLevel> levels = layer.phases[0]->keep_levels();
  EXPECT_EQ(levels[0].bytes, 0);
  EXPECT_EQ(levels[1].name, "states");
  EXPECT_TRUE(levels[1].may_wait);
  EXPECT_EQ(levels[1].bytes,
            round_up(kLayerTokens * kWidth * 4, 256) + round_up(ceil_div(kLayerTokens, kEvery) * kWidth * 4, 256));
}

TEST(RecurrentMixer, RemembersASequenceInGenerationWhateverPiecesItComesIn) {
  const Layer layer = recurrent_layer(kLayerTokens);
  const Phase& phase = *layer.phases[0];
  const LayerRun run = run_layer(layer, {});
  EXPECT_FALSE(phase.cache_rewinds());
  EXPECT_EQ(phase.cache_bytes(2, 100), phase.cache_bytes(2, 1)) << "its cache does not grow with the context";
  const std::unique_ptr<Device> device = make_cpu_device();
  const std::unique_ptr<Ops> ops = make_cpu_ops({.threads = 1});
  const std::unique_ptr<Stream> stream = device->make_stream("compute");
  std::vector<float> weights = run.weights[0], x = run.x, y(run.x.size());
  std::vector<std::byte> cache(static_cast<size_t>(phase.cache_bytes(2, kLayerTokens)), std::byte{0x7f});
  std::vector<std::byte*> slabs = {reinterpret_cast<std::byte*>(weights.data())};
  const std::vector<int32_t> positions = layer_positions();
  std::vector<int32_t> sequences;  // each document is one
  for (size_t t = 0; t < positions.size(); ++t) sequences.push_back(static_cast<int32_t>(t) >= kLayerDocuments[1]);
  int64_t begin = 0;
  for (const int64_t count : {1, 1, 1, 9, 20, 8}) {  // the fifth spans the two documents
    std::vector<std::byte> work(static_cast<size_t>(phase.decode_workspace_bytes(count)));
    const auto rows = [&](std::vector<float>& values) {
      return matrix(values.data() + begin * kHidden, DType::f32, count, kHidden);
    };
    phase.decode(*ops, *stream,
                 {.weights = slabs,
                  .x = rows(x),
                  .y = rows(y),
                  .tokens = {.tokens = count,
                             .sequences = &sequences[static_cast<size_t>(begin)],
                             .positions = &positions[static_cast<size_t>(begin)]},
                  .cache = {.bytes = cache.data(), .sequences = 2, .context = kLayerTokens},
                  .tables = nullptr,
                  .workspace = work.data()});
    stream->synchronize();
    begin += count;
  }
  ASSERT_EQ(begin, kLayerTokens);
  EXPECT_EQ(y, run.y);
}

// A dense block of a family, and the same with a recurrent mixer beside attention or instead of it.
class BlockOfAFamily : public ::testing::Test {
 protected:
  static ModelConfig config() {
    return parse_model_config(read_json_file(in_repository("tests/parity/goldens/gemma3_local/model/config.json")),
                              "gemma3_local");
  }
  const ModelConfig config_ = config();
  const ModelShape shape_{.dtype = DType::f32, .tokens = kLayerTokens, .mlp_chunk = 16, .positions = kLayerTokens};
  const Model model_ = make_model(config_, shape_);

  Block::Channels mlp(const LayerLayout& record) const {
    Block::Channels channels;
    channels.push_back(std::make_unique<Mlp>(config_.activation, DType::f32, record));
    return channels;
  }
};

TEST_F(BlockOfAFamily, GivesTheBitsOfItsBranchesAsPhasesOfTheirOwn) {
  const LayerLayout& record = model_.layers[0].records[0];
  Layer cut;
  cut.records = {record};
  cut.phases.push_back(std::make_unique<Block>(block_shape(config_, shape_), record,
                                               attention_of(config_, shape_, 0, record), Block::Channels{}));
  cut.phases.push_back(std::make_unique<Block>(block_shape(config_, shape_), record, Block::Mixers{}, mlp(record)));
  for (int32_t level = 0; level < most_levels(cut); ++level) {
    SCOPED_TRACE(level);
    expect_equal(run_layer(cut, model_.make_tables(), Keep{level}), run_layer(model_.layers[0], model_.make_tables()));
  }
}

TEST_F(BlockOfAFamily, AddsItsMixersOutputs) {
  std::vector<TensorSpec> tensors = model_.layers[0].records[0].tensors;
  for (TensorSpec tensor : toy::recurrent_tensors("toy", config_.hidden, kWidth)) {
    if (tensor.operand != BlockOperand::input_norm) tensors.push_back(std::move(tensor));
  }
  const auto layer = [&](bool with_attention, bool with_recurrence) {
    Layer made;
    made.records.push_back(in_fp32(tensors));
    const LayerLayout& record = made.records[0];
    Block::Mixers mixers;
    if (with_attention) mixers = attention_of(config_, shape_, 0, record);
    if (with_recurrence) mixers.push_back(std::make_unique<toy::Recurrent>(kRecurrent, record));
    BlockShape shape = block_shape(config_, shape_);
    made.phases.push_back(std::make_unique<Block>(shape, record, std::move(mixers), mlp(record)));
    return made;
  };
  const std::vector<float> tables = model_.make_tables();
  const LayerRun both = run_layer(layer(true, true), tables);
  for (int32_t level = 0; level < most_levels(layer(true, true)); ++level) {
    SCOPED_TRACE(level);
    expect_equal(run_layer(layer(true, true), tables, Keep{level}), both);
  }
  EXPECT_NE(both.y, run_layer(layer(true, false), tables).y);
  EXPECT_NE(both.y, run_layer(layer(false, true), tables).y);
}

}  // namespace megatrain
