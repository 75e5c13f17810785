// How a layer's experts are divided into records. This does not change the result, so it is the plan's choice. The
// number of experts per record is decided here, and the records are made in model/model.cc. All other code reads from a
// record how many experts it holds (LayerLayout::norm_parts, RecordWork::norm_parts) and never derives that number.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "megatrain/config/config.h"
#include "megatrain/machine/machine_profile.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

// How many experts a record should hold on a device with this much memory: as many of a layer's as fit in 1/24 of it.
// This leaves space for the weights and gradients of several records at once. 0: all.
int64_t experts_in_a_record(const ModelConfig& model, DType dtype, int64_t device_bytes);

// The record sizes, in experts, among which choose_groups() chooses if no plan is named: the size from
// experts_in_a_record(), a quarter of it, and the size with 16 records per layer. Only 0 for a dense model, and for one
// whose experts must be in one record.
std::vector<int64_t> group_sizes(const ModelConfig& model, DType dtype, int64_t device_bytes);

// The workload to plan for, chosen from those that workload_of(experts_per_record) returns:
// - If the configuration names a plan, the size in that plan.
// - Otherwise the size from experts_in_a_record(), or a quarter of it if only that fits or its planned step is shorter.
// - If neither fits, the size with 16 records per layer. Such records need little more memory than records of single
//   experts would, so the memory that the resulting error asks for is enough.
// - With `quickly`, the size from experts_in_a_record(), without planning.
Workload choose_groups(const TrainConfig& config, const ModelConfig& model, DType dtype, const Budgets& budgets,
                       const MachineProfile& machine, const std::function<Workload(int64_t)>& workload_of,
                       bool quickly = false);

// Experts per record in the random plans of a seed: 0 (all of a layer) or fewer; 0 for a dense model.
int64_t random_group(const ModelConfig& model, uint64_t seed);

}  // namespace megatrain
