#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/train/target.h"

namespace megatrain {

namespace {

nlohmann::json placement(const Workload& w, const Plan& plan) {
  nlohmann::json list = nlohmann::json::array();
  for (int64_t record = 0; record < w.record_count(); ++record) {
    const bool block = w.is_layer_record(record);
    const bool here = plan.state_on_device(record) || (block && plan.copied(record));
    list.push_back(
        {{"layer", record},
         {"kind", block         ? "block"
                  : record == 0 ? "embedding"
                                : "head"},
         {"weights", here ? "hbm" : "host"},
         {"state", plan.visiting(record) ? "host, visiting" : tier_name(plan.state[static_cast<size_t>(record)])},
         {"moments", plan.moments_on_disk(record) ? "disk" : tier_name(plan.state[static_cast<size_t>(record)])},
         {"boundary", nullptr}});
  }
  for (int64_t phase = 1; phase < w.head_phase(); ++phase)
    list[static_cast<size_t>(w.phase(phase).records.front())]["boundary"] = tier_name(plan.boundary_of(phase));
  return list;
}

// What backward computes again, a word a block.
const char* recomputed(Keep keep) {
  switch (keep) {
    case Keep::nothing: return "all";
    case Keep::attention: return "mlp";
    case Keep::products: return "norms";
    case Keep::everything: return "none";
  }
  return "?";
}

nlohmann::json describe(const Workload& w, const Plan& plan, const MachineProfile& machine) {
  nlohmann::json recompute = nlohmann::json::array();
  for (const Keep keep : plan.keep) recompute.push_back(recomputed(keep));
  const MemoryNeed need = memory_need(w, plan);
  const Estimate e = estimate(w, plan, machine);
  nlohmann::json json = {
      {"placement", placement(w, plan)},
      {"slots", plan.slots},
      {"sweeps", plan.sweeps},
      {"recompute", recompute},
      {"peaks", {{"hbm", need.hbm_bytes()}, {"host", need.host_bytes()}, {"disk", need.disk_bytes()}}},
      {"step_s", e.step_s},
      {"lanes_s",
       {{"compute", e.compute_s},
        {"h2d", e.h2d_s},
        {"d2h", e.d2h_s},
        {"update", e.update_s},
        {"disk_read", e.disk_read_s},
        {"disk_write", e.disk_write_s}}},
      {"bound_by", e.bound_by},
      {"plan_hash", plan_hash(plan)},
      {"plan", plan_to_json(plan)},
      {"memory", memory_to_json(need)}};
  return json;
}

// A random plan that fits: the seed's, or the first of a series that begins with it.
Plan random_plan_within(const Workload& workload, const Budgets& budgets, uint64_t seed) {
  constexpr uint64_t kTries = 1000, kStride = uint64_t{1} << 32;
  for (uint64_t i = 0; i < kTries; ++i) {
    const Plan plan = random_plan(workload, seed + i * kStride);
    const MemoryNeed need = memory_need(workload, plan);
    if (need.hbm_bytes() <= budgets.gpu_bytes && need.host_bytes() <= budgets.host_bytes &&
        need.disk_bytes() <= budgets.disk_bytes)
      return plan;
  }
  fail(ExitCode::cannot_fit,
       fmt::format("none of {} random plans fits the budgets; leave --random out, or raise memory.gpu and memory.host",
                   kTries));
}

}  // namespace

int verb_plan(const Arguments& arguments) {
  Session session =
      open_target(arguments.one("CONFIG, DIR or PRESET"), arguments.overrides(), arguments.integer("--layers"));
  const Workload& workload = session.workload();
  const MachineProfile profile = session.profile();

  std::vector<std::string> changes;
  Plan plan;
  std::string problem;
  try {
    if (const auto seed = arguments.integer("--random")) {
      plan = random_plan_within(workload, session.budgets(), static_cast<uint64_t>(*seed));
    } else {
      plan = session.plan(&changes);
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::cannot_fit) throw;
    problem = error.what();
    changes.push_back(problem);
  }
  if (arguments.json()) {
    nlohmann::json json = problem.empty() ? describe(workload, plan, profile) : nlohmann::json::object();
    json["fits"] = problem.empty();
    json["changes"] = changes;
    fmt::print("{}\n", json_text(json, 1));
  } else if (problem.empty()) {
    fmt::print("{}", explain(workload, plan, estimate(workload, plan, profile)));
    for (const std::string& change : changes) fmt::print("to fit: {}\n", change);
  }
  if (problem.empty()) return 0;
  if (!arguments.json()) say_error(problem);
  return static_cast<int>(ExitCode::cannot_fit);
}

}  // namespace megatrain
