// What a configuration would need on a machine and how fast it would be. Nothing is opened, allocated or read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/plan/fit.h"
#include "megatrain/train/setup.h"

namespace megatrain {

// `stored` is as for make_model(). `quickly` is as for choose_groups(), for callers that compare many configurations.
PlanInputs plan_inputs(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                       const TensorTypes& stored = {}, bool quickly = false);

// The same with this many experts per record (Workload::experts_per_record).
PlanInputs plan_inputs_of_group(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                                const TensorTypes& stored, int64_t experts_per_record);

// The same run with the smallest possible step, one micro-batch.
std::optional<Fit> fit_smallest_step(const TrainConfig& config, const ModelConfig& model, const PlannedMachine& planned,
                                     const TensorTypes& stored = {});

TrainConfig with_state(TrainConfig config, const StateFormat& format);

// Patterns that match the embedding and the lower half of the layers.
std::vector<std::string> lower_half(const ModelConfig& model);

}  // namespace megatrain
