// Names, and the hash that tells schedules apart.
#include "megatrain/engine/schedule.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace megatrain {

const char* lane_name(Lane lane) {
  switch (lane) {
    case Lane::h2d: return "h2d";
    case Lane::compute: return "compute";
    case Lane::d2h: return "d2h";
    case Lane::update: return "update";
    case Lane::gather: return "gather";
  }
  return "?";
}

const char* action_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::gather_rows: return "gather rows";
    case ActionKind::fetch_inputs: return "fetch inputs";
    case ActionKind::fetch_rows: return "fetch rows";
    case ActionKind::fetch_weights: return "fetch weights";
    case ActionKind::fetch_boundary: return "fetch boundary";
    case ActionKind::fetch_state: return "fetch state";
    case ActionKind::embed_forward: return "embed forward";
    case ActionKind::block_forward: return "block forward";
    case ActionKind::head: return "head";
    case ActionKind::block_backward: return "block backward";
    case ActionKind::embed_backward: return "embed backward";
    case ActionKind::merge_rows: return "merge rows";
    case ActionKind::finish_gradient: return "finish gradient";
    case ActionKind::finish_losses: return "finish losses";
    case ActionKind::clip_factor: return "clip factor";
    case ActionKind::update_on_device: return "update on device";
    case ActionKind::offload_boundary: return "offload boundary";
    case ActionKind::offload_gradient: return "offload gradient";
    case ActionKind::report: return "report";
    case ActionKind::return_state: return "return state";
    case ActionKind::update: return "update";
  }
  return "?";
}

const char* resource_name(ResourceKind kind) {
  switch (kind) {
    case ResourceKind::record_weights: return "record weights";
    case ResourceKind::record_state: return "record state";
    case ResourceKind::visiting_state: return "visiting state";
    case ResourceKind::staged_rows: return "staged rows";
    case ResourceKind::device_rows: return "device rows";
    case ResourceKind::inputs: return "inputs";
    case ResourceKind::weight_slot: return "weight slot";
    case ResourceKind::resident_weights: return "resident weights";
    case ResourceKind::head_slot: return "head slot";
    case ResourceKind::boundary: return "boundary";
    case ResourceKind::boundary_slot: return "boundary slot";
    case ResourceKind::host_boundary: return "host boundary";
    case ResourceKind::kept: return "kept activations";
    case ResourceKind::gradient_stream: return "gradient stream";
    case ResourceKind::gradient_sum: return "gradient sum";
    case ResourceKind::head_gradient_sum: return "head gradient sum";
    case ResourceKind::row_gradient_sum: return "row gradient sum";
    case ResourceKind::gradient_out: return "gradient leaving";
    case ResourceKind::head_gradient_out: return "head gradient leaving";
    case ResourceKind::row_gradient_out: return "row gradient leaving";
    case ResourceKind::host_gradient: return "host gradient";
    case ResourceKind::host_record_gradient: return "host record gradient";
    case ResourceKind::losses: return "losses";
    case ResourceKind::squares: return "sums of squares";
    case ResourceKind::loss_sums: return "loss sums";
    case ResourceKind::clip: return "clip factor";
    case ResourceKind::host_squares: return "host sums of squares";
    case ResourceKind::host_report: return "host report";
  }
  return "?";
}

std::string wait_kind_name(const WaitKind& kind) {
  return fmt::format("{} waits for {} on {}", lane_name(kind.to), lane_name(kind.from), resource_name(kind.resource));
}

std::string Schedule::hash() const {
  std::string text;
  for (const Action& a : actions) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{}", static_cast<int>(a.kind), static_cast<int>(a.lane),
                        a.record, a.micro_batch, a.weights_at, a.boundary_in, a.boundary_out, static_cast<int>(a.keep),
                        a.gradient_sum, a.gradient_out, a.host_gradient);
    for (const Wait& w : a.waits) text += fmt::format(":{}-{}", w.action, w.steps_back);
    text += ';';
  }
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace megatrain
