// The engine's own memory: slots, slabs, boundaries and staging, allocated once from the plan's inventory. Only
// address() turns a resource into an address. Nothing is allocated after the first step.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "megatrain/device/device.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/schedule.h"
#include "megatrain/store/record.h"

namespace megatrain {

class EngineMemory {
 public:
  // Allocates every resource that nothing else owns (records, ops scratch and driver own theirs). The records must
  // outlive it.
  EngineMemory(Device& device, const Workload& workload, const Plan& plan, const std::vector<LayerRecord>& records);

  const Workload& workload() const { return workload_; }
  const Plan& plan() const { return plan_; }

  // The memory that is idle between steps (is_idle_between_steps), as one range of at least the workload's
  // generation_bytes. Its contents may be overwritten while no lane works. Empty if the workload has no generation.
  std::span<std::byte> idle() const { return {lent_.data(), lent_.bytes()}; }

  std::byte* address(const Resource& resource) const;
  int64_t bytes(const Resource& resource) const { return inventory_.bytes(resource); }
  template <class T>
  T* at(const Resource& resource) const {
    return reinterpret_cast<T*>(address(resource));
  }

  // A record's planes, either where it lives (record_state; record_weights gives only the weights) or where it visits
  // (visiting_state).
  StatePlanes planes(const Resource& state, int64_t record) const;
  // The same for an action; internal error if it does not declare these planes.
  StatePlanes planes(const Action& action, const Resource& state) const;

  // The planes that an update on the host works on: those of the record, and those that live on disk in their slab.
  // Internal error if the action does not declare all that it needs.
  StatePlanes planes_to_update(const Action& update) const;

  // A step's report, on the host. Sums of squares are ordered by record, and within a record by part.
  std::span<const double> host_squares() const {
    return {at<double>({ResourceKind::host_report}), static_cast<size_t>(workload_.norm_parts())};
  }
  double* host_loss_sums() const { return at<double>({ResourceKind::host_report}) + workload_.norm_parts(); }
  double host_loss() const { return host_loss_sums()[0]; }
  int64_t host_correct() const;
  // One mark for each lane that the device updates on: 0, or the record (from 1) in which an update of the previous
  // step produced a non-finite weight or moment.
  std::span<int32_t> host_not_finite() const {
    return {reinterpret_cast<int32_t*>(host_loss_sums() + 2), static_cast<size_t>(plan_.update_lanes())};
  }
  // Router counts of a training step, phase after phase.
  std::byte* host_router_counts() const { return reinterpret_cast<std::byte*>(host_loss_sums() + 3); }

 private:
  void place_in_lent(Device& device);
  // Points `planes` at the planes of the record that live on disk, in their slab.
  void take_from_slab(const Action& update, StatePlanes& planes) const;

  Workload workload_;
  Plan plan_;
  const std::vector<LayerRecord>& records_;
  Inventory inventory_;
  Buffer lent_;
  std::array<Buffer, kResourceKinds> buffers_;  // those within lent_ own nothing
};

}  // namespace megatrain
