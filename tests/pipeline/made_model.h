// A tiny model whose layers a test builds itself, trained in process under any plan.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/train/model_work.h"
#include "tests/pipeline/tiny.h"

namespace megatrain::tiny {

class MadeModel {
 public:
  using Make = std::function<Model(const ModelConfig&, const ModelShape&)>;
  MadeModel(const Shape& shape, Make make, const std::string& device = "cpu")
      : shape_(shape), config_(model_config(shape)), make_(std::move(make)) {
    std::string why;
    machine_.device = device == "cuda" ? make_cuda_device(&why) : make_cpu_device();
    if (!machine_.device) throw std::runtime_error(why);
    machine_.ops = device == "cuda" ? make_cuda_ops(*machine_.device) : make_cpu_ops({.threads = 2});
    machine_.disk.place.directory = std::filesystem::temp_directory_path().string();
    const int64_t sequences = shape.sequences / shape.micro_batches;
    model_shape_ = {.dtype = shape.precision == "fp32" ? DType::f32 : DType::bf16,
                    .tokens = sequences * shape.seq_len,
                    .mlp_chunk = 0,
                    .head_chunk = 0,
                    .positions = shape.seq_len};
    ops_ = {.dtype = model_shape_.dtype,
            .tokens = model_shape_.tokens,
            .attention = {{.tokens = model_shape_.tokens,
                           .heads = config_.heads,
                           .kv_heads = config_.kv_heads,
                           .head_dim = config_.head_dim,
                           .scale = 1}},
            .hidden = config_.hidden,
            .ff = config_.ff,
            .max_documents = model_shape_.tokens,
            .longest_document = shape.seq_len};
    const Model model = make_(config_, model_shape_);
    workload_ = model_work(model, {.dtype = model_shape_.dtype, .sequences = sequences, .seq_len = shape.seq_len});
    workload_.micro_batches = shape.micro_batches;
    workload_.clip = shape.clip;
    workload_.scratch_bytes = machine_.ops->scratch_bytes(ops_);
    workload_.input_bytes = input_bytes(model, shape.micro_batches, workload_.touched_rows(0));
  }

  const Workload& workload() const { return workload_; }
  const Device& device() const { return *machine_.device; }

  std::unique_ptr<Trainer> trainer(const Plan& plan) {
    auto trainer = std::make_unique<Trainer>(machine_, make_(config_, model_shape_), ops_, workload_, plan, 2);
    init_weights(config_, 7, trainer->records(), 2);
    return trainer;
  }

  // Elements of a record's first tensor have the gradient that differences of the loss give. The shape is one of fp32
  // without clipping. With a huge epsilon AdamW goes down the gradient itself.
  void expect_gradients(const Plan& plan, int64_t record, const std::vector<int64_t>& elements) {
    constexpr double kRate = 1e-3, kEps = 1e6, kStep = 1e-2, kTolerance = 1e-4;
    const auto value = [&](Trainer& trainer, int64_t at) {
      const LayerRecord& of = trainer.records()[static_cast<size_t>(record)];
      return reinterpret_cast<float*>(of.weights()) + of.layout().tensors.front().offset + at;
    };
    const auto loss_with = [&](int64_t at, double change, double* gradient) {
      const auto trained = trainer(plan);
      *value(*trained, at) += static_cast<float>(change);
      const double before = *value(*trained, at);
      const AdamWStep adamw{.lr = kRate * kEps, .beta1 = 0, .beta2 = 0, .eps = kEps, .weight_decay = 0, .t = 1};
      const double loss = trained->step(make_batch(shape_, 0), {.adamw = adamw, .clip = 0}).loss;
      trained->drain();
      if (gradient) *gradient = (before - *value(*trained, at)) / kRate;
      return loss;
    };
    double largest = 0;
    for (const int64_t at : elements) {
      double gradient = 0;
      loss_with(at, 0, &gradient);
      const double expected = (loss_with(at, kStep, nullptr) - loss_with(at, -kStep, nullptr)) / (2 * kStep);
      EXPECT_NEAR(gradient, expected, kTolerance + 0.01 * std::abs(expected)) << at;
      largest = std::max(largest, std::abs(expected));
    }
    EXPECT_GT(largest, 20 * kTolerance) << "the gradients are far above what rounding makes";
  }

  // The state's hash after `steps` steps, and the last loss.
  std::pair<std::string, double> train(const Plan& plan, int64_t steps, uint64_t seed = 0) {
    const auto trained = trainer(plan);
    double loss = 0;
    for (int64_t s = 1; s <= steps; ++s) {
      const AdamWStep adamw{
          .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .t = s, .seed = seed};
      loss = trained->step(make_batch(shape_, 0), {.adamw = adamw, .clip = shape_.clip ? 0.5 : 0}).loss;
    }
    trained->drain();
    return {hash_state(trained->records(), steps).state, loss};
  }

 private:
  Shape shape_;
  ModelConfig config_;
  Make make_;
  Machine machine_;
  ModelShape model_shape_;
  OpsShape ops_;
  Workload workload_;
};

}  // namespace megatrain::tiny
