// Adapters: their gradients are those of the merged weights, the base never changes, and no plan changes a bit.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "megatrain/model/token_rows.h"
#include "megatrain/plan/inventory.h"
#include "tests/pipeline/adapter_check.h"
#include "tests/support/fixtures.h"

namespace megatrain::tiny {

namespace {

constexpr uint64_t kAdapterPlans = kSanitized ? 1 : 16;
constexpr int64_t kAdapterSteps = kSanitized ? 2 : 3;
constexpr int64_t kDropoutLayers = kSanitized ? 1 : 2;
constexpr uint64_t kMemoryPlans = kSanitized ? 1 : 4;

using Tensors = std::map<std::string, std::vector<float>>;

Tensors values_of(const std::vector<LayerRecord>& records, bool trained) {
  Tensors values;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (tensor.trainable != trained) continue;
      std::vector<float>& into = values[tensor.name];
      into.resize(static_cast<size_t>(tensor.elements()));
      record.read_master(tensor, 0, tensor.elements(), into.data());
    }
  }
  return values;
}

// Calls write(tensor, values) for every tensor, and writes what it leaves in `values`.
template <class Write>
void rewrite(std::vector<LayerRecord>& records, const Write& write) {
  for (LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      record.read_master(tensor, 0, tensor.elements(), values.data());
      write(tensor, values);
      record.write_master(tensor, 0, tensor.elements(), values.data());
    }
  }
}

// Fills the second halves, which begin at zero.
void draw_second_halves(std::vector<LayerRecord>& records) {
  rewrite(records, [](const TensorSpec& tensor, std::vector<float>& values) {
    if (tensor.role != TensorRole::adapter_out) return;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(0.4 * random_uniform(11, tensor.name_hash(), i) - 0.2);
  });
}

// The gradients of the first step, in fp32.
Tensors first_gradients(Tiny& tiny, Trainer& trainer, StepReport& report) {
  Tensors gradients;
  const auto note = [&](int64_t index, const HostGradient& gradient) {
    const LayerRecord& record = trainer.records()[static_cast<size_t>(index)];
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (!tensor.trainable) continue;
      if (gradient.rows) {  // of a table
        std::vector<float>& rows = gradients[tensor.name];
        rows.assign(static_cast<size_t>(tensor.elements()), 0.0f);
        for (size_t i = 0; i < gradient.rows->size(); ++i)
          std::copy_n(reinterpret_cast<const float*>(gradient.data) + static_cast<int64_t>(i) * tensor.cols,
                      tensor.cols, rows.begin() + (*gradient.rows)[i] * tensor.cols);
        continue;
      }
      const auto* begin = reinterpret_cast<const float*>(gradient.data) + tensor.state_offset;
      gradients[tensor.name].assign(begin, begin + tensor.elements());
    }
  };
  trainer.updater().observe(note);
  report = tiny.step(trainer, 1);
  trainer.drain();
  trainer.updater().observe({});
  trainer.device_gradients(note);
  return gradients;
}

// The largest difference of `found` from `expected`, relative to the largest magnitude of `expected`.
double worst(const std::vector<float>& found, const std::vector<double>& expected) {
  double most = 0, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    most = std::max(most, std::fabs(expected[i]));
    difference = std::max(difference, std::fabs(static_cast<double>(found[i]) - expected[i]));
  }
  return difference / most;
}

// Its place in the list.
uint64_t number_of(const AdapterCase& c) {
  const auto found = std::ranges::find_if(adapter_cases(),
                                          [&](const AdapterCase& other) { return std::string(other.name) == c.name; });
  return static_cast<uint64_t>(found - adapter_cases().begin());
}

class Adapters : public ::testing::TestWithParam<AdapterCase> {};

TEST_P(Adapters, EveryRandomPlanGivesOneStateHash) {
  const uint64_t first = kSanitized ? number_of(GetParam()) : 0;  // few plans: another one for each case
  expect_one_hash_with_adapters(GetParam(), "cpu", kAdapterPlans, kAdapterSteps, first);
}

TEST_P(Adapters, TheBaseStaysBitForBitAndWhatIsTrainedMoves) {
  Tiny tiny(GetParam().adapted());
  const auto trainer = tiny.trainer(random_plan(tiny.workload(), 3));
  const Tensors base = values_of(trainer->records(), false), trained = values_of(trainer->records(), true);
  for (int64_t step = 1; step <= kAdapterSteps; ++step) tiny.step(*trainer, step);
  trainer->drain();
  EXPECT_EQ(values_of(trainer->records(), false), base);
  for (const auto& [name, values] : values_of(trainer->records(), true)) EXPECT_NE(values, trained.at(name)) << name;
}

TEST_P(Adapters, MemoryIsWhatThePlanSaid) {
  Tiny tiny(GetParam().adapted());
  const Device& device = *tiny.machine().device;
  for (uint64_t seed = 0; seed < kMemoryPlans; ++seed) {
    const Plan plan = random_plan(tiny.workload(), seed);
    const auto trainer = tiny.trainer(plan);
    const MemoryNeed need = memory_need(tiny.workload(), plan);
    EXPECT_EQ(device.ledger().bytes(), need.hbm_bytes()) << device.ledger().table();
    EXPECT_EQ(device.host_ledger().bytes(), need.host_bytes()) << device.host_ledger().table();
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Adapters, ::testing::ValuesIn(kSanitized ? sanitized_adapter_cases() : adapter_cases()),
                         [](const auto& info) { return info.param.name; });

// dL/dB = s dL/dW A^T and dL/dA = s B^T dL/dW, where dL/dW is the gradient of the weight that A and B are merged into.
TEST(AdapterGradient, IsThatOfTheMergedWeight) {
  const Shape dense{.layers = 3, .clip = false, .precision = "fp32", .dumps = true},
      experts{.layers = 3, .clip = false, .precision = "fp32", .dumps = true, .experts = 4};
  const AdapterRules linear{.rank = 4, .alpha = 6},
      of_experts{.rank = 4, .alpha = 6, .targets = {"q_proj", "gate_proj", "up_proj", "down_proj"}};
  for (const AdapterCase& adapters :
       {AdapterCase{"dense", linear, dense}, {"experts", linear, experts}, {"of experts", of_experts, experts}}) {
    SCOPED_TRACE(adapters.name);
    const Shape& shape = adapters.shape;
    Tiny adapted(adapters.adapted()), whole(shape);
    const auto trainer = adapted.trainer(adapted.default_plan()), merged = whole.trainer(whole.default_plan());
    draw_second_halves(trainer->records());
    const Tensors halves = values_of(trainer->records(), true);
    constexpr double kScale = 6.0 / 4;
    constexpr size_t kRank = 4;
    const auto halves_of = [&](const std::string& tensor) {
      const std::string module = module_of(tensor);
      const auto a = halves.find(module + ".lora_A.weight"), b = halves.find(module + ".lora_B.weight");
      return std::pair{a == halves.end() ? nullptr : &a->second, b == halves.end() ? nullptr : &b->second};
    };
    std::set<std::string> merged_weights;
    std::map<std::string, size_t> width;
    rewrite(merged->records(), [&](const TensorSpec& tensor, std::vector<float>& values) {
      const auto [a, b] = halves_of(tensor.name);
      if (!a) return;
      merged_weights.insert(tensor.name);
      const size_t cols = width[tensor.name] = static_cast<size_t>(tensor.cols);
      for (size_t i = 0; i < values.size(); ++i) {
        double delta = 0;
        for (size_t r = 0; r < kRank; ++r) delta += (*b)[i / cols * kRank + r] * (*a)[r * cols + i % cols];
        values[i] += static_cast<float>(kScale * delta);
      }
    });
    ASSERT_EQ(merged_weights.size(), halves.size() / 2);
    StepReport found, expected;
    const Tensors gradients = first_gradients(adapted, *trainer, found);
    const Tensors of_weights = first_gradients(whole, *merged, expected);
    EXPECT_NEAR(found.loss, expected.loss, 2e-6 * expected.loss);
    for (const std::string& name : merged_weights) {
      const auto [a, b] = halves_of(name);
      const std::vector<float>& grad = of_weights.at(name);
      const size_t cols = width.at(name), rows = grad.size() / cols;
      std::vector<double> grad_a(kRank * cols), grad_b(rows * kRank);
      for (size_t i = 0; i < rows; ++i) {
        for (size_t j = 0; j < cols; ++j) {
          for (size_t r = 0; r < kRank; ++r) {
            grad_a[r * cols + j] += kScale * (*b)[i * kRank + r] * grad[i * cols + j];
            grad_b[i * kRank + r] += kScale * grad[i * cols + j] * (*a)[r * cols + j];
          }
        }
      }
      EXPECT_LT(worst(gradients.at(module_of(name) + ".lora_A.weight"), grad_a), 2e-5) << name;
      EXPECT_LT(worst(gradients.at(module_of(name) + ".lora_B.weight"), grad_b), 2e-5) << name;
    }
  }
}

// The loss, and the gradient of rows of single tokens, are those of a table that has these rows.
TEST(AdapterGradient, OfRowsOfTokensIsThatOfTheirTable) {
  const Shape untied{.layers = 2, .clip = false, .precision = "fp32", .dumps = true};
  Shape tied = untied;
  tied.tied = true;
  tied.pad_id = 33;
  const AdapterRules both{.rank = 2, .token_indices = {{"embed_tokens", {7, 60, 3}}, {"lm_head", {3, 8}}}},
      shared{.rank = 2, .token_indices = {{"embed_tokens", {33, 2, 41}}}};
  for (const AdapterCase& c : {AdapterCase{"both", both, untied}, AdapterCase{"shared", shared, tied}}) {
    SCOPED_TRACE(c.name);
    Tiny adapted(c.adapted()), whole(c.shape);
    const auto trainer = adapted.trainer(adapted.default_plan()), merged = whole.trainer(whole.default_plan());
    std::map<std::string, std::pair<std::vector<int32_t>, std::vector<float>>> rows;  // by table
    rewrite(trainer->records(), [&](const TensorSpec& tensor, std::vector<float>& values) {
      if (tensor.role != TensorRole::token_rows) return;
      for (size_t i = 0; i < values.size(); ++i)
        values[i] += static_cast<float>(random_uniform(11, tensor.name_hash(), i) - 0.5);
      rows[table_of(tensor)] = {tensor.ids, values};
    });
    rewrite(merged->records(), [&](const TensorSpec& tensor, std::vector<float>& values) {
      const auto found = rows.find(tensor.name);
      for (size_t i = 0; found != rows.end() && i < found->second.first.size(); ++i)
        std::copy_n(found->second.second.begin() + static_cast<int64_t>(i) * tensor.cols, tensor.cols,
                    values.begin() + found->second.first[i] * tensor.cols);
    });
    StepReport found, expected;
    const Tensors gradients = first_gradients(adapted, *trainer, found);
    const Tensors of_tables = first_gradients(whole, *merged, expected);
    EXPECT_NEAR(found.loss, expected.loss, 2e-6 * expected.loss);
    for (const auto& [table, ids_and_values] : rows) {
      const std::vector<float>& of_table = of_tables.at(table);
      const auto cols = static_cast<int64_t>(ids_and_values.second.size() / ids_and_values.first.size());
      std::vector<double> of_rows;
      for (const int32_t id : ids_and_values.first)
        of_rows.insert(of_rows.end(), of_table.begin() + id * cols, of_table.begin() + (id + 1) * cols);
      EXPECT_LT(worst(gradients.at(module_of(table) + ".token_adapter.trainable_tokens_delta"), of_rows), 2e-5)
          << table;
    }
  }
}

// The dropped elements are the same in forward, in backward and in a repeated step.
TEST(AdapterDropout, GradientsAreThoseOfTheLossWithTheSameElementsDropped) {
  const AdapterCase c{.name = "",
                      .adapter = {.rank = 4, .alpha = 8, .dropout = 0.3},
                      .shape = {.layers = kDropoutLayers, .clip = false, .precision = "fp32", .dumps = true}};
  Tiny tiny(c.adapted());
  const auto prepared = [&] {
    auto trainer = tiny.trainer(tiny.default_plan());
    draw_second_halves(trainer->records());
    return trainer;
  };
  StepReport report;
  const auto trainer = prepared();
  const Tensors gradients = first_gradients(tiny, *trainer, report);
  constexpr float kEps = 4e-3f;
  for (const auto& [name, gradient] : gradients) {
    const auto most = std::ranges::max_element(gradient, {}, [](float g) { return std::fabs(g); });
    const size_t at = static_cast<size_t>(most - gradient.begin());
    const auto loss_at = [&](float shift) {
      const auto shifted = prepared();
      rewrite(shifted->records(), [&](const TensorSpec& tensor, std::vector<float>& values) {
        if (tensor.name == name) values[at] += shift;
      });
      return tiny.step(*shifted, 1).loss;
    };
    const double slope = (loss_at(kEps) - loss_at(-kEps)) / (2 * kEps);
    EXPECT_NEAR(slope, *most, 0.02 * std::fabs(*most) + 2e-4) << name;
  }
  const auto again = prepared();
  EXPECT_EQ(tiny.step(*again, 1).loss, report.loss);
  EXPECT_NE(tiny.step(*prepared(), 2).loss, report.loss);
}

// An adapter with DoRA, and the weight under it.
struct DoraModule {
  std::vector<float> weight, a, b, magnitude;
  size_t rank = 0, rows = 0, cols = 0;
  double scale = 0;

  double summed(size_t i, size_t j) const {
    double delta = 0;
    for (size_t r = 0; r < rank; ++r) delta += static_cast<double>(b[i * rank + r]) * a[r * cols + j];
    return weight[i * cols + j] + scale * delta;
  }
  double norm(size_t i) const {
    double squares = 0;
    for (size_t j = 0; j < cols; ++j) squares += summed(i, j) * summed(i, j);
    return std::sqrt(squares);
  }
};

std::map<std::string, DoraModule> dora_modules(const std::vector<LayerRecord>& records, const AdapterRules& rules) {
  const Tensors base = values_of(records, false), trained = values_of(records, true);
  std::map<std::string, DoraModule> modules;
  for (const auto& [name, values] : trained) {
    if (!name.ends_with(".lora_magnitude_vector")) continue;
    const std::string module = module_of(name);
    DoraModule& m = modules[module];
    m = {.weight = base.at(module + ".weight"),
         .a = trained.at(module + ".lora_A.weight"),
         .b = trained.at(module + ".lora_B.weight"),
         .magnitude = values,
         .rank = static_cast<size_t>(rules.rank),
         .rows = values.size(),
         .cols = 0,
         .scale = rules.alpha / static_cast<double>(rules.rank)};
    m.cols = m.weight.size() / m.rows;
  }
  return modules;
}

// Magnitudes that are not the norms.
void draw_dora(std::vector<LayerRecord>& records) {
  draw_second_halves(records);
  rewrite(records, [](const TensorSpec& tensor, std::vector<float>& values) {
    if (tensor.role != TensorRole::adapter_magnitude) return;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] *= static_cast<float>(0.6 + 0.8 * random_uniform(12, tensor.name_hash(), i));
  });
}

// With W' = g (W + s B A): dL/dB = s g dL/dW' A^T, dL/dA = s B^T (g dL/dW'), dL/dm = rows of dL/dW' (W + s B A) / norm.
TEST(DoraGradient, IsThatOfTheMergedWeightWithTheNormHeld) {
  const AdapterCase adapters{"",
                             {.rank = 4, .alpha = 6, .dora = true, .exclude = {"k_proj"}},
                             {.layers = 3, .clip = false, .precision = "fp32", .dumps = true}};
  Tiny adapted(adapters.adapted()), whole(adapters.shape);
  const auto trainer = adapted.trainer(adapted.default_plan()), merged = whole.trainer(whole.default_plan());
  draw_dora(trainer->records());
  const auto modules = dora_modules(trainer->records(), adapters.adapter);
  ASSERT_EQ(modules.size(), 3u * 6);
  rewrite(merged->records(), [&](const TensorSpec& tensor, std::vector<float>& values) {
    const auto found = modules.find(module_of(tensor.name));
    if (found == modules.end()) return;
    const DoraModule& m = found->second;
    for (size_t i = 0; i < m.rows; ++i) {
      const double factor = m.magnitude[i] / m.norm(i);
      for (size_t j = 0; j < m.cols; ++j) values[i * m.cols + j] = static_cast<float>(factor * m.summed(i, j));
    }
  });
  StepReport found, expected;
  const Tensors gradients = first_gradients(adapted, *trainer, found);
  const Tensors of_weights = first_gradients(whole, *merged, expected);
  EXPECT_NEAR(found.loss, expected.loss, 2e-6 * expected.loss);
  for (const auto& [name, m] : modules) {
    const std::vector<float>& grad = of_weights.at(name + ".weight");
    std::vector<double> grad_a(m.a.size()), grad_b(m.b.size()), grad_m(m.rows);
    for (size_t i = 0; i < m.rows; ++i) {
      const double norm = m.norm(i), factor = m.magnitude[i] / norm;
      for (size_t j = 0; j < m.cols; ++j) {
        const double g = grad[i * m.cols + j];
        grad_m[i] += g * m.summed(i, j) / norm;
        for (size_t r = 0; r < m.rank; ++r) {
          grad_a[r * m.cols + j] += m.scale * factor * m.b[i * m.rank + r] * g;
          grad_b[i * m.rank + r] += m.scale * factor * g * m.a[r * m.cols + j];
        }
      }
    }
    EXPECT_LT(worst(gradients.at(name + ".lora_A.weight"), grad_a), 2e-5) << name;
    EXPECT_LT(worst(gradients.at(name + ".lora_B.weight"), grad_b), 2e-5) << name;
    EXPECT_LT(worst(gradients.at(name + ".lora_magnitude_vector"), grad_m), 2e-5) << name;
  }
}

// A finite difference moves the norms, which the gradients take as constants: the magnitudes follow them.
TEST(DoraDropout, GradientsAreThoseOfTheLossWithTheSameElementsDropped) {
  const AdapterCase c{"",
                      {.rank = 4, .alpha = 8, .dropout = 0.3, .dora = true},
                      {.layers = kDropoutLayers, .clip = false, .precision = "fp32", .dumps = true}};
  Tiny tiny(c.adapted());
  const auto prepared = [&] {
    auto trainer = tiny.trainer(tiny.default_plan());
    draw_dora(trainer->records());
    return trainer;
  };
  StepReport report;
  const auto trainer = prepared();
  const auto modules = dora_modules(trainer->records(), c.adapter);
  const Tensors gradients = first_gradients(tiny, *trainer, report);
  constexpr float kEps = 4e-3f;
  for (const auto& [name, gradient] : gradients) {
    const bool of_magnitude = name.ends_with("_vector");
    const std::string module = of_magnitude ? module_of(name) : module_of(module_of(name));
    const auto most = std::ranges::max_element(gradient, {}, [](float g) { return std::fabs(g); });
    const size_t at = static_cast<size_t>(most - gradient.begin());
    const auto loss_at = [&](float shift) {
      DoraModule moved = modules.at(module);
      (of_magnitude ? moved.magnitude : name.ends_with("lora_A.weight") ? moved.a : moved.b)[at] += shift;
      for (size_t i = 0; i < moved.rows; ++i)
        moved.magnitude[i] *= static_cast<float>(moved.norm(i) / modules.at(module).norm(i));
      const auto shifted = prepared();
      rewrite(shifted->records(), [&](const TensorSpec& tensor, std::vector<float>& values) {
        if (tensor.name == module + ".lora_A.weight") values = moved.a;
        if (tensor.name == module + ".lora_B.weight") values = moved.b;
        if (tensor.name == module + ".lora_magnitude_vector") values = moved.magnitude;
      });
      return tiny.step(*shifted, 1).loss;
    };
    const double slope = (loss_at(kEps) - loss_at(-kEps)) / (2 * kEps);
    EXPECT_NEAR(slope, *most, 0.02 * std::fabs(*most) + 2e-4) << name;
  }
  EXPECT_EQ(tiny.step(*prepared(), 1).loss, report.loss);
  EXPECT_NE(tiny.step(*prepared(), 2).loss, report.loss);
}

TEST(DoraMagnitudes, BeginAsTheNormsOfTheWeightsAsTheyCompute) {
  for (const Shape& shape : {Shape{.layers = 3}, Shape{.layers = 3, .precision = "fp32"},
                             Shape{.layers = 3, .bf16_source = true}, Shape{.layers = 3, .files = DType::f16}}) {
    const AdapterCase c{"", {.rank = 4, .dropout = 0.2, .dora = true}, shape};
    Tiny tiny(c.adapted());
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const auto trainer = tiny.trainer(random_plan(tiny.workload(), seed));
      const auto modules = dora_modules(trainer->records(), c.adapter);
      ASSERT_EQ(modules.size(), 3u * 7);
      for (const auto& [name, m] : modules) {
        for (size_t i = 0; i < m.rows; ++i) EXPECT_FLOAT_EQ(m.magnitude[i], static_cast<float>(m.norm(i))) << name;
      }
    }
  }
}

// The factors are one, so what is added is what LoRA adds, with the same elements dropped.
TEST(DoraMagnitudes, ThatAreTheNormsGiveTheLossOfLora) {
  AdapterCase c{"", {.rank = 4, .alpha = 8, .dropout = 0.3}, {.layers = 3, .precision = "fp32"}};
  Tiny plain(c.adapted());
  c.adapter.dora = true;
  Tiny dora(c.adapted());
  const auto trainer = plain.trainer(plain.default_plan()), other = dora.trainer(dora.default_plan());
  draw_second_halves(trainer->records());
  draw_second_halves(other->records());
  const auto modules = dora_modules(other->records(), c.adapter);
  rewrite(other->records(), [&](const TensorSpec& tensor, std::vector<float>& values) {
    if (tensor.role != TensorRole::adapter_magnitude) return;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(modules.at(module_of(tensor.name)).norm(i));
  });
  const double loss = plain.step(*trainer, 1).loss;
  EXPECT_NEAR(dora.step(*other, 1).loss, loss, 2e-6 * loss);
}

TEST(AdapterState, HoldsOnlyWhatIsTrainedAndComesBackBitForBit) {
  const AdapterCase c{
      .name = "",
      .adapter = {.rank = 4, .also_train = {"norm"}, .token_indices = {{"embed_tokens", {7, 3}}, {"lm_head", {9}}}},
      .shape = {.bf16_source = true}};
  Tiny tiny(c.adapted());
  const auto trainer = tiny.trainer(random_plan(tiny.workload(), 1));
  for (int64_t step = 1; step <= 2; ++step) tiny.step(*trainer, step);
  trainer->drain();
  TemporaryDirectory out;
  const std::string path = out / "state.safetensors";
  const StateHash saved = save_state(path, 2, trainer->records(), StateForm::stored, 2);
  std::set<std::string> names;
  for (const TensorDeclaration& tensor : stored_tensors(trainer->records())) names.insert(tensor.name);
  EXPECT_TRUE(names.contains("model.layers.0.self_attn.q_proj.lora_A.weight.exp_avg"));
  EXPECT_TRUE(names.contains("model.norm.weight"));
  EXPECT_FALSE(names.contains("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_TRUE(names.contains("lm_head.token_adapter.trainable_tokens_delta.exp_avg"));
  EXPECT_FALSE(names.contains("lm_head.weight"));
  const auto other = tiny.trainer(random_plan(tiny.workload(), 2));
  load_state(path, other->records(), 2);
  EXPECT_EQ(hash_state(other->records(), 2).state, saved.state);
  tiny.step(*trainer, 3);
  tiny.step(*other, 3);
  trainer->drain();
  other->drain();
  EXPECT_EQ(hash_state(other->records(), 3).state, hash_state(trainer->records(), 3).state);
}

TEST(AdapterRulesAre, TakenForModulesThatAlsoHaveABias) {
  const AdapterRules rules{.rank = 4, .targets = {"q_proj", "o_proj"}};
  EXPECT_NO_THROW(model_layouts(model_config({.biases = true}), DType::bf16, {.adapter = rules}));
}

TEST(AdapterRulesAre, RefusedWhereTheyMatchNothingOrCannotBe) {
  const auto refused = [](const AdapterRules& rules, std::initializer_list<std::string> parts,
                          const Shape& shape = {}) {
    expect_error(ExitCode::bad_config, parts,
                 [&] { model_layouts(model_config(shape), DType::bf16, {.adapter = rules}); });
  };
  refused({.rank = 4, .targets = {"q_porj"}}, {"adapter.targets", "q_porj", "q_proj"});
  refused({.rank = 4, .targets = {"q_proj", "lm_head"}}, {"adapter.targets", "lm_head", "also_train"});
  refused({.rank = 4, .targets = {"gate"}}, {"gate", "cannot"}, {.layers = 2, .experts = 4});
  refused({.rank = 4, .targets = {"q_proj", ".*_proj"}}, {"regular expression", "alone"});
  refused({.rank = 4, .targets = {"(q_proj"}}, {"adapter.targets", "regular expression"});
  refused({.rank = 4, .targets = {".*(q_proj|lm_head)"}}, {"adapter.targets", "lm_head"});
  refused({.rank = 4, .targets = {".*"}}, {"adapter.targets", "cannot have an adapter"});
  refused({.rank = 4, .targets = {"all-linear", "q_proj"}}, {"all-linear", "alone"});
  refused({.rank = 4, .exclude = {"w_proj"}}, {"adapter.exclude", "w_proj"});
  refused({.rank = 4, .exclude = {"all-linear"}}, {"adapter.exclude", "all-linear"});
  refused({.rank = 4, .targets = {"q_proj"}, .exclude = {"v_proj"}}, {"adapter.exclude", "v_proj"});
  refused({.rank = 4, .targets = {"q_proj"}, .rank_pattern = {{"v_proj", 2}}}, {"adapter.rank_pattern", "v_proj"});
  refused({.rank = 4, .also_train = {"layers.0.mlp"}}, {"adapter.also_train", "experts"}, {.layers = 2, .experts = 4});
  const Shape experts{.layers = 2, .experts = 4};
  refused({.rank = 4, .target_parameters = {"mlp.gate_up_proj"}}, {"target_parameters", "mlp.experts.gate_up_proj"},
          experts);
  refused({.rank = 4, .target_parameters = {"experts.down_proj"}}, {"target_parameters", "no experts"});
  refused({.rank = 4, .dropout = 0.1, .target_parameters = {"experts.down_proj"}}, {"adapter.dropout"}, experts);
  refused({.rank = 4, .bias = AdapterBias::all}, {"adapter.bias is all", "no bias"});
  refused({.rank = 4, .bias = AdapterBias::of_adapted, .targets = {"up_proj"}}, {"adapter.bias is lora_only"},
          {.biases = true});
  refused({.rank = 4, .dora = true, .target_parameters = {"experts.down_proj"}}, {"adapter.dora", "experts"}, experts);
  refused({.rank = 4, .dora = true, .targets = {"down_proj"}}, {"adapter.dora", "experts"}, experts);
  refused({.rank = 4, .targets = {"down_proj"}, .target_parameters = {"experts.gate_up_proj"}}, {"one kind"}, experts);
  refused({.rank = 4, .targets = {"experts.1.down_proj"}}, {"equal", "without numbers"}, experts);
  refused({.rank = 4, .targets = {"q_proj"}, .exclude = {"q_proj"}}, {"nothing with an adapter"});
  refused({.rank = 4, .rank_pattern = {{"z_proj", 2}}}, {"adapter.rank_pattern", "z_proj"});
  refused({.rank = 4, .also_train = {"tail"}}, {"adapter.also_train", "tail"});
  refused({.rank = 4, .also_train = {"embed_tokens"}}, {"tie_word_embeddings"}, {.tied = true});
  refused({.rank = 25}, {"25", "24"});
  const auto tokens = [](std::vector<int64_t> ids, const char* module = "embed_tokens") {
    return AdapterRules{.rank = 4, .token_indices = {{module, std::move(ids)}}};
  };
  refused(tokens({7, 61}), {"trainable_token_indices", "61", "0 to 60"});
  refused(tokens({-1}), {"trainable_token_indices", "-1"});
  refused(tokens({7, 3, 7}), {"trainable_token_indices", "7 twice"});
  refused(tokens({}), {"trainable_token_indices", "no id"});
  refused(tokens({7}, "norm"), {"'norm'", "embed_tokens or lm_head"});
  refused(tokens({7}, "lm_head"), {"lm_head", "tie_word_embeddings"}, {.tied = true});
  AdapterRules more = tokens({7});
  more.token_indices.emplace_back("model.embed_tokens", std::vector<int64_t>{3});
  refused(more, {"model.embed_tokens twice"});
  more = tokens({7}, "lm_head");
  more.also_train = {"lm_head"};
  refused(more, {"lm_head", "adapter.also_train"});
  more = tokens({7});
  more.targets = {};
  refused(more, {"nothing with an adapter"});
  more = tokens({99});
  more.from_file = true;
  expect_error(ExitCode::bad_input, {"adapter_config.json", "99"},
               [&] { model_layouts(model_config({}), DType::bf16, {.adapter = more}); });
}

}  // namespace

}  // namespace megatrain::tiny
