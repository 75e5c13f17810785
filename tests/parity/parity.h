// Trains a committed golden (made with transformers by make_goldens.py) in process.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "megatrain/data/token_data.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/train/gradient_dump.h"
#include "megatrain/train/session.h"
#include "megatrain/train/state_files.h"
#include "megatrain/train/trainer.h"
#include "tests/support/places.h"

namespace megatrain::parity {

using Tensors = std::map<std::string, std::vector<float>>;

inline constexpr const char* kAdapterGoldens = "adapter_goldens/";

// The folder of a model's golden, or of an adapter's, whose name begins with kAdapterGoldens.
inline std::string golden_path(const std::string& name) {
  return in_repository("tests/parity/" + std::string(name.starts_with(kAdapterGoldens) ? "" : "goldens/")) + name;
}

// The goldens with short sequences, or those with 8K tokens.
inline std::vector<std::string> golden_names(bool long_sequences = false) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path(""))) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("long_") == long_sequences) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline std::vector<std::string> adapter_golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path(kAdapterGoldens)))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// The adapter of an expected.json.
inline TrainConfig::Adapter adapter_of(const nlohmann::json& golden) {
  const nlohmann::json& a = golden.at("adapter");
  const auto modules = [&](const char* key) {
    if (!a.contains(key) || a.at(key).is_null()) return std::vector<std::string>{};
    return a.at(key).is_string() ? std::vector<std::string>{a.at(key).get<std::string>()}
                                 : a.at(key).get<std::vector<std::string>>();
  };
  const auto numbers = [&](const char* key) {
    std::vector<std::pair<std::string, double>> list;
    for (const auto& [pattern, number] : a.at(key).items()) list.emplace_back(pattern, number.get<double>());
    return list;
  };
  const auto token_indices = [&] {
    std::vector<std::pair<std::string, std::vector<int64_t>>> list;
    const nlohmann::json given = a.value("trainable_token_indices", nlohmann::json());
    if (given.is_array()) list.emplace_back("embed_tokens", given.get<std::vector<int64_t>>());
    const nlohmann::json by_module = given.is_object() ? given : nlohmann::json::object();
    for (const auto& [module, ids] : by_module.items()) list.emplace_back(module, ids.get<std::vector<int64_t>>());
    return list;
  };
  return {.rank = a.at("rank"),
          .alpha = a.at("alpha"),
          .dropout = a.at("dropout"),
          .targets = modules("targets"),
          .target_parameters = modules("target_parameters"),
          .exclude = modules("exclude"),
          .rslora = a.at("rslora"),
          .dora = a.value("dora", false),
          .bias = a.value("bias", "none"),
          .rank_pattern = numbers("rank_pattern"),
          .alpha_pattern = numbers("alpha_pattern"),
          .also_train = modules("also_train"),
          .trainable_token_indices = token_indices()};
}

inline Tensors read_tensors(const std::string& path) {
  Tensors tensors;
  const ModelFiles files(path);
  for (const StoredTensor* stored : files.tensors()) {
    if (!parameter_type(stored->dtype)) continue;  // a matrix in fp8
    std::vector<float>& values = tensors[stored->name];
    values.resize(static_cast<size_t>(stored->elements()));
    read_as_f32(*stored, 0, stored->elements(), values.data());
  }
  return tensors;
}

inline float largest(const std::vector<float>& values) {
  float most = 0;
  for (const float v : values) most = std::max(most, std::abs(v));
  return most;
}

// max|a - b| / max(max|b|, 1e-4 x the largest magnitude over all b), so that noise on a gradient that is zero by
// symmetry does not count as an error of 1.
inline std::map<std::string, double> relative_errors(const Tensors& a, const Tensors& b) {
  float of_model = 0;
  for (const auto& [name, values] : b) of_model = std::max(of_model, largest(values));
  std::map<std::string, double> errors;
  for (const auto& [name, expected] : b) {
    const std::vector<float>& found = a.at(name);
    EXPECT_EQ(found.size(), expected.size()) << name;
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double d = std::abs(static_cast<double>(found[i]) - expected[i]);
      worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    }
    errors[name] = worst / std::max<double>(largest(expected), 1e-4 * of_model);
  }
  return errors;
}

// 1 if both are zero, as for gradients of experts without tokens.
inline double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa == 0 && bb == 0 ? 1 : ab / std::sqrt(aa * bb);
}

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<double> aux_losses, z_losses;  // of the router, if trained
  Tensors gradients;                         // of the first step
  Tensors weights;                           // after the last step
};

struct Variant {
  std::string device = "cpu";
  std::string precision = "fp32";
  int64_t micro_batch = 2;
  int64_t steps = 0;  // 0: all of the golden's
  int64_t mlp_chunk = 0;
};

inline Outcome run_golden(const std::string& name, const Variant& variant) {
  const std::string path = golden_path(name);
  const nlohmann::json golden = read_json_file(path + "/expected.json");
  TrainConfig config;
  config.device = variant.device;
  config.precision = variant.precision;
  if (golden.contains("base")) {
    config.model.path = path + "/" + golden.at("base").get<std::string>();
    config.model.adapter = path + "/adapter";
    config.adapter = adapter_of(golden);
  } else {
    config.model.path = path + "/" + golden.at("model").get<std::string>();
  }
  const nlohmann::json& data = golden.at("data");
  const auto file = [&](const char* key) {
    return data.contains(key) ? path + "/" + data.at(key).get<std::string>() : std::string();
  };
  config.data = {.tokens = file("tokens"),
                 .dtype = data.at("dtype").get<std::string>(),
                 .documents = file("documents"),
                 .labels = file("labels"),
                 .order = file("order")};
  config.seq_len = golden.at("seq_len").get<int64_t>();
  config.batch = golden.at("batch").get<int64_t>();
  config.micro_batch = variant.micro_batch;
  config.steps = golden.at("steps").get<int64_t>();
  config.mlp_chunk = variant.mlp_chunk;
  config.threads = 2;
  config.freeze = golden.value("freeze", config.freeze);
  if (const nlohmann::json router = golden.value("router", nlohmann::json::object()); router.contains("aux_loss"))
    config.moe.aux_loss = router.at("aux_loss").get<double>();
  if (golden.contains("router")) config.moe.z_loss = golden.at("router").at("z_loss").get<double>();
  const nlohmann::json& o = golden.at("optim");
  config.optim.clip = o.at("clip").get<double>();
  config.memory.gpu_bytes = config.memory.host_bytes = int64_t{4} << 30;
  config.dump.grads.all = true;

  Session session(config);
  Trainer& trainer = session.trainer();
  session.fill_weights();
  TokenData tokens(config, session.model().vocab);

  Outcome outcome;
  const std::string dump_path = ::testing::TempDir() + "/grads-" + name.substr(name.find('/') + 1) + variant.precision +
                                variant.device + ".safetensors";
  for (int64_t step = 1; step <= (variant.steps > 0 ? variant.steps : config.steps); ++step) {
    std::unique_ptr<GradientDump> dump;
    if (step == 1) {
      dump = std::make_unique<GradientDump>(dump_path, 1, trainer.records());
      trainer.updater().observe([&](int64_t record, const HostGradient& gradient) { dump->record(record, gradient); });
    }
    const AdamWStep adamw{.lr = o.at("lr"),
                          .beta1 = o.at("beta1"),
                          .beta2 = o.at("beta2"),
                          .eps = o.at("eps"),
                          .weight_decay = o.at("weight_decay"),
                          .t = step};
    const StepReport report = trainer.step(tokens.batch(step - 1), {.adamw = adamw, .clip = config.optim.clip});
    outcome.losses.push_back(report.loss);
    outcome.norms.push_back(report.grad_norm);
    if (report.router && report.router->aux_loss) outcome.aux_losses.push_back(*report.router->aux_loss);
    if (report.router && report.router->z_loss) outcome.z_losses.push_back(*report.router->z_loss);
    if (dump) {
      trainer.device_gradients([&](int64_t record, const HostGradient& gradient) { dump->record(record, gradient); });
      trainer.updater().observe({});
      dump->finish();
      outcome.gradients = read_tensors(dump_path);
      std::filesystem::remove(dump_path);
    }
  }
  trainer.drain();
  for (const LayerRecord& record : trainer.records()) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (golden.contains("base") && !tensor.trainable) continue;
      std::vector<float>& values = outcome.weights[tensor.name];
      values.resize(static_cast<size_t>(tensor.elements()));
      record.read_master(tensor, 0, tensor.elements(), values.data());
    }
  }
  return outcome;
}

// fp32: losses, every gradient of the first step, norms, and every weight after all clipped AdamW steps are within
// 1e-5.
inline void expect_fp32_parity(const std::string& name, Variant variant) {
  variant.precision = "fp32";
  const nlohmann::json golden = read_json_file(golden_path(name) + "/expected.json");
  const Outcome outcome = run_golden(name, variant);
  for (size_t i = 0; i < outcome.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], golden.at("losses")[i].get<double>(), 1e-5 * golden.at("losses")[i].get<double>())
        << "step " << i + 1;
    EXPECT_NEAR(outcome.norms[i], golden.at("grad_norms")[i].get<double>(),
                1e-5 * golden.at("grad_norms")[i].get<double>())
        << "step " << i + 1;
  }
  const auto expect_router_losses = [&](const char* key, const std::vector<double>& found) {
    for (size_t i = 0; i < found.size(); ++i) {
      const double expected = golden.at(key)[i].get<double>();
      EXPECT_NEAR(found[i], expected, 1e-5 * expected) << key << " of step " << i + 1;
    }
  };
  EXPECT_EQ(outcome.aux_losses.size(), golden.contains("aux_losses") ? outcome.losses.size() : 0);
  expect_router_losses("aux_losses", outcome.aux_losses);
  expect_router_losses("z_losses", outcome.z_losses);
  const Tensors gradients = read_tensors(golden_path(name) + "/grads.safetensors"),
                weights = read_tensors(golden_path(name) + "/final.safetensors");
  ASSERT_EQ(outcome.gradients.size(), gradients.size());
  ASSERT_EQ(outcome.weights.size(), weights.size());
  for (const auto& [tensor, error] : relative_errors(outcome.gradients, gradients))
    EXPECT_LE(error, 1e-5) << "gradient of " << tensor;
  for (const auto& [tensor, error] : relative_errors(outcome.weights, weights))
    EXPECT_LE(error, 1e-5) << tensor << " after the last step";
}

// bf16: losses are within 2e-2, and the cosine of every gradient is at least 0.999.
inline void expect_bf16_parity(const std::string& name, Variant variant) {
  variant.precision = "bf16";
  variant.steps = 1;
  const nlohmann::json golden = read_json_file(golden_path(name) + "/expected.json");
  const Outcome outcome = run_golden(name, variant);
  EXPECT_NEAR(outcome.losses[0], golden.at("losses")[0].get<double>(), 2e-2);
  const Tensors gradients = read_tensors(golden_path(name) + "/grads.safetensors");
  ASSERT_EQ(outcome.gradients.size(), gradients.size());
  for (const auto& [tensor, expected] : gradients)
    EXPECT_GE(cosine(outcome.gradients.at(tensor), expected), 0.999) << tensor;
}

}  // namespace megatrain::parity
