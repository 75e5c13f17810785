// The plan decides where each byte lives and when it moves, never what it becomes: every valid plan of a workload gives
// the same bits. It is the one place that decides; everything below obeys it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "megatrain/plan/workload.h"
#include "megatrain/tensor/tier.h"

namespace megatrain {

struct Plan {
  int64_t slots = 2;                // device slots that blocks stream through
  std::vector<Tier> weights;        // (L) hbm: the block has a place of its own, fetched once a step; host: streamed
  std::vector<Tier> boundary;       // (L) where block l's input waits for backward
  int64_t boundary_slots = 2;       // device ring for inputs that wait on the host; 2 or more
  std::vector<int64_t> sweeps;      // micro-batches of each sweep, adding up to the step's
  int64_t gradient_slabs = 2;       // device slabs that rounded gradients leave from
  int64_t host_gradient_slabs = 0;  // (blocks) that gradients wait in; all of them when clipping
  bool serial = false;              // every action waits for the one before: the ablation
  bool operator==(const Plan&) const = default;
};

// Bytes by tag; what the engine allocates under the same tags.
struct MemoryNeed {
  struct Item {
    std::string tag;
    int64_t bytes;
  };
  std::vector<Item> hbm, host;
  int64_t hbm_bytes() const;
  int64_t host_bytes() const;
  int64_t bytes_of(const std::string& tag) const;  // throws an internal error for an unknown tag
};
MemoryNeed memory_need(const Workload& workload, const Plan& plan);

// Speeds of the machine; estimates are only as good as these.
struct MachineProfile {
  double flops_per_s = 600e12;
  double h2d_bytes_per_s = 50e9;
  double d2h_bytes_per_s = 50e9;
  double dram_bytes_per_s = 100e9;
};

struct Estimate {
  double step_s = 0;
  double compute_s = 0, h2d_s = 0, d2h_s = 0, update_s = 0;
  std::string bound_by;
};
Estimate estimate(const Workload& workload, const Plan& plan, const MachineProfile& machine);

// Weight bytes that cross to the device in one step.
int64_t fetched_weight_bytes(const Workload& workload, const Plan& plan);

struct Budgets {
  int64_t gpu_bytes = 0;  // of the device, driver's own share included
  int64_t host_bytes = 0;
};

// The best plan this planner knows within the budgets. Throws Error(cannot_fit) before anything is allocated; the
// message says what is needed, what is there, and what would fit. `notes` receives what was given up to fit.
Plan make_plan(const Workload& workload, const Budgets& budgets, std::vector<std::string>* notes);

// Some valid plan: varies everything a plan may vary.
Plan random_plan(const Workload& workload, uint64_t seed);

// Throws Error(bad_config) naming the field that is wrong for this workload.
void check_plan(const Workload& workload, const Plan& plan);
// Throws Error(cannot_fit) when the plan needs more than the budgets.
void check_fit(const Workload& workload, const Plan& plan, const Budgets& budgets);

nlohmann::json plan_to_json(const Plan& plan);
Plan plan_from_json(const nlohmann::json& json, const std::string& where);
std::string plan_hash(const Plan& plan);

// Lines for a person: placement, memory by tag, what bounds the step.
std::string explain(const Workload& workload, const Plan& plan, const Estimate& estimate);

}  // namespace megatrain
