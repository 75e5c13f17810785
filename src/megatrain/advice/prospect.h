// What a configuration would need and how fast it would be at a site. Nothing is opened, allocated or read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/plan/fit.h"
#include "megatrain/train/setup.h"

namespace megatrain {

// `stored` as make_model() takes it, `quickly` as choose_groups() does: where many are looked at.
Prospect prospect_of(const TrainConfig& config, const ModelConfig& model, const Site& site,
                     const TensorTypes& stored = {}, bool quickly = false);

// The same with so many experts in a record (Workload::experts_per_record).
Prospect prospect_of_group(const TrainConfig& config, const ModelConfig& model, const Site& site,
                           const TensorTypes& stored, int64_t experts_per_record);

// The same run with steps of one micro-batch, the smallest there are.
std::optional<Fit> fit_smallest_step(const TrainConfig& config, const ModelConfig& model, const Site& site,
                                     const TensorTypes& stored = {});

TrainConfig with_state(TrainConfig config, const StateFormat& format);

// "model.embed_tokens.*" and patterns that match the layers below half of them.
std::vector<std::string> lower_half(int64_t layers);

}  // namespace megatrain
