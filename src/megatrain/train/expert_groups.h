// How a layer's experts are cut into records: what changes no bit, and is the plan's to choose. The size is decided
// here and records are cut in model/model.cc; how many experts a record holds is then read from it
// (LayerLayout::norm_parts, RecordWork::norm_parts), and nothing else derives it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "megatrain/config/config.h"
#include "megatrain/machine/machine_profile.h"
#include "megatrain/model/config.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

// Experts that a record should hold where the device has so much memory: all of a layer's while they take no more than
// a 24th of it, which leaves room for several records' weights and gradients at once; else as many as do. 0: all.
int64_t experts_in_a_record(const ModelConfig& model, DType dtype, int64_t device_bytes);

// The sizes of records, in experts, that choose_groups() chooses from where no plan is named: that above, a quarter of
// it, and that of 16 records a layer. Of a dense model 0 alone.
std::vector<int64_t> group_sizes(const ModelConfig& model, DType dtype, int64_t device_bytes);

// The workload to plan for, of those that workload_of(experts_per_record) gives: that of the plan which the
// configuration names; else with records of the size above, or a quarter of it where the planner's step is shorter then
// or fits then alone. Where neither fits, with a layer's experts in 16 records, which need little more than single ones
// would: what a refusal then asks for is enough. `quickly`: of the size above, without planning.
Workload choose_groups(const TrainConfig& config, const ModelConfig& model, DType dtype, const Budgets& budgets,
                       const MachineProfile& machine, const std::function<Workload(int64_t)>& workload_of,
                       bool quickly = false);

// Experts in a record of the random plans of a seed: 0 (all of a layer) or fewer; of a dense model 0.
int64_t random_group(const ModelConfig& model, uint64_t seed);

}  // namespace megatrain
