// Lists every resource of a step exactly once. The plan's memory is the sum of this list, the engine allocates it, and
// an address is an offset into it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "megatrain/plan/plan.h"
#include "megatrain/plan/resource.h"

namespace megatrain {

class SlotRings;

// Bytes by kind of resource. `files`: read from the model's own files; nothing is allocated for them.
struct MemoryNeed {
  std::array<int64_t, kResourceKinds> hbm{}, host{}, disk{}, files{};

  const std::array<int64_t, kResourceKinds>& of(Tier tier) const {
    return tier == Tier::hbm ? hbm : tier == Tier::host ? host : tier == Tier::disk ? disk : files;
  }
  std::array<int64_t, kResourceKinds>& of(Tier tier) {
    return tier == Tier::hbm ? hbm : tier == Tier::host ? host : tier == Tier::disk ? disk : files;
  }
  int64_t hbm_bytes() const;
  int64_t host_bytes() const;
  int64_t disk_bytes() const;
  int64_t file_bytes() const;
  int64_t bytes_of(ResourceKind kind) const {
    const size_t at = static_cast<size_t>(kind);
    return hbm[at] + host[at] + disk[at];
  }
};
MemoryNeed memory_need(const Workload& workload, const Plan& plan);
// The same, for callers that size many plans of one workload; `slots` must be that workload's.
MemoryNeed memory_need(const Workload& workload, const Plan& plan, const SlotRings& slots);
// Which kinds live on disk, for example "weights and moments and gradients and block inputs".
std::string disk_contents(const MemoryNeed& need);
nlohmann::json memory_to_json(const MemoryNeed& need);  // {"hbm": {name: bytes}, "host": {...}, ...}

// A plane of a record (its weights, low bits or moments) that lives on disk, and its size there.
struct DiskPlane {
  ResourceKind kind;
  int64_t bytes;
};
// The planes of a record that live on disk, in the order in which they lie in the slab used for its update.
std::vector<DiskPlane> disk_planes(const Workload& workload, const Plan& plan, int64_t record);

// Bytes that a slab must hold to update a record whose moments live on disk.
int64_t update_slab_bytes(const Workload& workload, const Plan& plan, int64_t record);

// The slab in which a layer record's gradient is summed. Records share one unless the sum must stay on the device.
Resource gradient_sum_of(const Workload& workload, const Plan& plan, int64_t record);

// Whether the record's gradient may reuse the memory of its phase's input. Backward has then read that input for the
// last time.
bool leaves_its_place(const Workload& workload, const Plan& plan, int64_t record);

// Where the rounded gradient of a layer record waits on the device for the norm, until the device uses it or the host
// fetches it: the memory of its phase's input, or memory of its own. nullopt: it does not wait on the device.
std::optional<Resource> waiting_gradient_of(const Workload& workload, const Plan& plan, int64_t record);

// The offset of each resource instance within the memory of its kind.
class Inventory {
 public:
  Inventory(const Workload& workload, const Plan& plan);

  const MemoryNeed& need() const { return need_; }
  int64_t offset(const Resource& resource) const;  // bytes into the memory of its kind
  int64_t bytes(const Resource& resource) const;   // size of the instance

  // Sizes of all instances that live on disk, grouped by kind, in the order of their offsets.
  const std::vector<int64_t>& disk_ranges() const { return disk_ranges_; }

 private:
  struct Place {
    int64_t offset = -1;  // -1: no such instance
    int64_t bytes = 0;    // for one b
    int64_t count = 0;    // number of values of b
  };
  const Place& place(const Resource& resource) const;

  MemoryNeed need_;
  std::array<std::vector<Place>, kResourceKinds> places_;  // indexed by a
  std::vector<int64_t> disk_ranges_;
};

}  // namespace megatrain
