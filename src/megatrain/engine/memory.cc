#include "megatrain/engine/memory.h"

#include <algorithm>
#include <cstring>

#include "megatrain/base/error.h"

namespace megatrain {

static_assert(kRecordPlaneAlignment == kPlaneAlignment, "the plan counts a record's planes as the store lays them out");

namespace {

// Whether something else owns it: the records, the ops, the driver or the process.
bool is_elsewhere(ResourceKind kind) {
  switch (kind) {
    case ResourceKind::record_weights:
    case ResourceKind::low_bits:
    case ResourceKind::first_moments:
    case ResourceKind::second_moments:
    case ResourceKind::disk_weights:
    case ResourceKind::disk_low_bits:
    case ResourceKind::disk_moments:
    case ResourceKind::disk_gradient:
    case ResourceKind::disk_boundary:
    case ResourceKind::disk_kept:
    case ResourceKind::file_weights:
    case ResourceKind::driver:
    case ResourceKind::ops_scratch:
    case ResourceKind::generation:  // part of lent_
    case ResourceKind::process: return true;
    default: return false;
  }
}

void leave_out_weights(StatePlanes& planes) {
  planes.weight = nullptr;
  planes.master = nullptr;
}

void leave_out_state(StatePlanes& planes) {
  planes.low = nullptr;
  planes.m = planes.v = nullptr;
}

}  // namespace

EngineMemory::EngineMemory(Device& device, const Workload& workload, const Plan& plan,
                           const std::vector<LayerRecord>& records)
    : workload_(workload), plan_(plan), records_(records), inventory_(workload, plan) {
  if (workload.generation_bytes > 0) place_in_lent(device);
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const ResourceKind kind = static_cast<ResourceKind>(i);
    if (is_elsewhere(kind) || buffers_[i].bytes() > 0) continue;
    const size_t hbm = static_cast<size_t>(inventory_.need().hbm[i]),
                 host = static_cast<size_t>(inventory_.need().host[i]);
    if (hbm > 0) buffers_[i] = device.allocate(hbm, resource_name(kind));
    if (host > 0) buffers_[i] = device.allocate_host(host, resource_name(kind));
  }
  // No action writes a frozen record's sum of squares, and non-finite marks are only ever set, so both start at zero.
  const auto stream = device.make_stream("zero");
  for (const ResourceKind kind : {ResourceKind::squares, ResourceKind::not_finite}) {
    Buffer& buffer = buffers_[static_cast<size_t>(kind)];
    if (buffer.bytes() > 0) stream->zero(buffer.data(), buffer.bytes());
  }
  stream->synchronize();
}

// One allocation for all memory that is idle between steps, plus what generating needs beyond it.
void EngineMemory::place_in_lent(Device& device) {
  const auto& need = inventory_.need().hbm;
  int64_t bytes = need[static_cast<size_t>(ResourceKind::generation)];
  for (size_t i = 0; i < need.size(); ++i) {
    if (is_idle_between_steps(static_cast<ResourceKind>(i))) bytes += need[i];
  }
  lent_ = device.allocate(static_cast<size_t>(bytes), "activations and generation");
  int64_t at = 0;
  for (size_t i = 0; i < need.size(); ++i) {
    if (!is_idle_between_steps(static_cast<ResourceKind>(i)) || need[i] == 0) continue;
    buffers_[i] = Buffer(lent_.data() + at, static_cast<size_t>(need[i]), [](void*, size_t) {});
    at += round_up(need[i], kKindAlignment);
  }
  ensure(at <= bytes, "what is idle between steps fits its allocation");
}

std::byte* EngineMemory::address(const Resource& r) const {
  if (r.kind == ResourceKind::record_weights) return records_[static_cast<size_t>(r.a)].weights();
  return buffers_[static_cast<size_t>(r.kind)].data() + inventory_.offset(r);
}

StatePlanes EngineMemory::planes(const Action& action, const Resource& state) const {
  const bool weights = std::ranges::any_of(action.accesses, [&](const Access& access) {
    return access.resource == Resource{ResourceKind::record_weights, action.record};
  });
  ensure(weights || state.kind != ResourceKind::record_state, "an action on a record's state declares its weights");
  return planes(state, action.record);
}

StatePlanes EngineMemory::planes(const Resource& state, int64_t record) const {
  const LayerRecord& of = records_[static_cast<size_t>(record)];
  if (state.kind == ResourceKind::visiting_state) return StatePlanes::within(address(state), of.layout());
  StatePlanes planes = of.planes();
  if (state.kind == ResourceKind::record_weights) leave_out_state(planes);
  return planes;
}

StatePlanes EngineMemory::planes_to_update(const Action& update) const {
  StatePlanes planes = records_[static_cast<size_t>(update.record)].planes();
  if (!update.has(Operand::weights)) leave_out_weights(planes);
  if (!update.has(Operand::state)) leave_out_state(planes);
  if (update.has(Operand::moments)) take_from_slab(update, planes);
  ensure((planes.weight || planes.master) && planes.m && planes.v &&
             (planes.low || workload_.low_bytes(update.record) == 0),
         "an update declares all that it changes");
  return planes;
}

void EngineMemory::take_from_slab(const Action& update, StatePlanes& planes) const {
  std::byte* slab = address(update.at(Operand::moments));
  for (const DiskPlane& plane : disk_planes(workload_, plan_, update.record)) {
    if (plane.kind == ResourceKind::disk_weights) {
      if (workload_.record(update.record).dtype == DType::bf16) {
        planes.weight = reinterpret_cast<bf16*>(slab);
      } else {
        planes.master = reinterpret_cast<float*>(slab);
      }
    } else if (plane.kind == ResourceKind::disk_low_bits) {
      if (plane.bytes > 0) planes.low = reinterpret_cast<uint16_t*>(slab);
    } else {
      planes.m = slab;
      planes.v = slab + workload_.disk_moment_bytes(update.record);
    }
    slab += plane.bytes;
  }
}

int64_t EngineMemory::host_correct() const {
  int64_t correct = 0;
  std::memcpy(&correct, host_loss_sums() + 1, sizeof(correct));
  return correct;
}

}  // namespace megatrain
