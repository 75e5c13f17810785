// Names, and the hash that identifies a schedule.
#include "megatrain/plan/schedule.h"

#include <algorithm>

#include <fmt/format.h>
#include <xxhash.h>

#include "megatrain/base/error.h"

namespace megatrain {

const char* lane_name(Lane lane) {
  switch (lane) {
    case Lane::h2d: return "h2d";
    case Lane::compute: return "compute";
    case Lane::d2h: return "d2h";
    case Lane::update: return "update";
    case Lane::gather: return "gather";
    case Lane::collect: return "collect";
    case Lane::disk_read: return "disk_read";
    case Lane::disk_write: return "disk_write";
    case Lane::visit_in: return "visit_in";
    case Lane::visit: return "visit";
  }
  return "?";
}

const char* action_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::gather_rows: return "gather rows";
    case ActionKind::fetch_inputs: return "fetch inputs";
    case ActionKind::fetch_rows: return "fetch rows";
    case ActionKind::fetch_weights: return "fetch weights";
    case ActionKind::fetch_activations: return "fetch activations";
    case ActionKind::fetch_state: return "fetch state";
    case ActionKind::forward: return "block forward";
    case ActionKind::head: return "head";
    case ActionKind::recompute: return "block again";
    case ActionKind::balance_experts: return "balance experts";
    case ActionKind::backward: return "block backward";
    case ActionKind::unpack_weights: return "unpack weights";
    case ActionKind::merge_rows: return "merge rows";
    case ActionKind::finish_gradient: return "finish gradient";
    case ActionKind::finish_losses: return "finish losses";
    case ActionKind::clip_factor: return "clip factor";
    case ActionKind::update_on_device: return "update on device";
    case ActionKind::offload_activations: return "offload activations";
    case ActionKind::offload_gradient: return "offload gradient";
    case ActionKind::report: return "report";
    case ActionKind::return_state: return "return state";
    case ActionKind::update: return "update";
    case ActionKind::stage_weights: return "stage weights";
    case ActionKind::fetch_moments: return "fetch moments";
    case ActionKind::return_moments: return "return moments";
    case ActionKind::collect_gradient: return "collect gradient";
    case ActionKind::read_activations: return "read activations";
    case ActionKind::store_activations: return "store activations";
    case ActionKind::fetch_gradient: return "fetch gradient";
    case ActionKind::store_gradient: return "store gradient";
  }
  return "?";
}

std::string wait_kind_name(const WaitKind& kind) {
  return fmt::format("{} waits for {} on {}", lane_name(kind.to), lane_name(kind.from), resource_name(kind.resource));
}

int64_t Action::count(Operand operand) const {
  int64_t found = 0;
  for (const Access& access : accesses) found += access.as == operand;
  return found;
}

const Resource& Action::at(Operand operand, int64_t nth) const {
  for (const Access& access : accesses) {
    if (access.as == operand && nth-- == 0) return access.resource;
  }
  fail_internal(fmt::format("{} has no such operand ({})", action_name(kind), static_cast<int>(operand)));
}

int64_t moved_activation_bytes(const Workload& w, const Action& action) {
  const bool kept = std::any_of(action.accesses.begin(), action.accesses.end(), [](const Access& access) {
    return access.resource.kind == ResourceKind::kept_slot || access.resource.kind == ResourceKind::disk_kept;
  });
  return kept ? w.kept_bytes(action.phase, action.keep) : w.activation_bytes(action.phase);
}

std::string Schedule::hash() const {
  std::string text;
  for (const Action& a : actions) {
    text += fmt::format("{},{},{},{},{},{}", static_cast<int>(a.kind), static_cast<int>(a.lane), a.phase, a.record,
                        a.micro_batch, static_cast<int>(a.keep));
    for (const Access& access : a.accesses)
      text += fmt::format("/{},{},{}", static_cast<int>(access.resource.kind), access.resource.a, access.resource.b);
    for (const Wait& w : a.waits) text += fmt::format(":{}-{}", w.action, w.steps_back);
    text += ';';
  }
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace megatrain
