// The weights of a model on the device, for passes that only read them. Some ranges stay resident; the rest stream
// through slots on their own stream, the next one while the current one is computed on. Weights on disk are read when
// they are copied, and packed ones are then unpacked by the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "megatrain/device/device.h"
#include "megatrain/store/record.h"

namespace megatrain {

// Bytes [begin, begin + bytes) of a record's weights in the dtype that computes.
struct WeightRange {
  const LayerRecord* record;
  int64_t begin;
  int64_t bytes;
};

class DeviceWeights {
 public:
  // As many ranges as fit into `lent` plus `memory_bytes` of device memory become resident; ranges already on the
  // device, or computed in place, cost nothing. `in_place`: the device computes on host memory. Resident ranges are
  // copied now, so the records' weights must not change while this object exists. A pass takes at most `at_once` ranges
  // before it is done with the first of them; there is one slot more.
  DeviceWeights(Device& device, std::vector<WeightRange> ranges, int64_t memory_bytes, bool in_place, int64_t at_once,
                std::span<std::byte> lent = {});

  // The minimum, lent or own, to run at all. If memory suffices for all ranges, everything stays resident.
  static int64_t least_bytes(const std::vector<WeightRange>& ranges, bool in_place, int64_t at_once);
  // The same for ranges of these sizes that must all be copied: an upper bound if some need not be.
  static int64_t least_bytes(const std::vector<int64_t>& coming, int64_t at_once);

  // A pass takes these ranges in this order, and is done with them in the same order. If `chosen`, only
  // what fetch() requests is copied, and not before that.
  struct Turn {
    size_t range;
    bool chosen = false;
    bool operator==(const Turn&) const = default;
  };
  void begin_pass(std::vector<Turn> turns);
  // Returns the range's address. Work enqueued on `compute` from now on may read it, until done().
  std::byte* take(Stream& compute, size_t range);
  // Copies some bytes of a `chosen` range that was taken; work enqueued from now on may read them.
  void fetch(Stream& compute, size_t range, int64_t begin, int64_t bytes);
  bool streams(size_t range) const { return addresses_[range] == nullptr; }
  void done(Stream& compute, size_t range);

  int64_t ranges() const { return static_cast<int64_t>(ranges_.size()); }
  int64_t resident_ranges() const;                        // copied or in place
  int64_t copied_bytes() const { return copied_bytes_; }  // by all passes so far
  Stream& copies() { return *copies_; }

 private:
  struct Slot {
    Buffer buffer;
    std::vector<std::byte> staged;  // weights from disk or unpacked, while being copied
    std::unique_ptr<Event> arrived, free;
    bool used = false;
  };

  Slot& slot_of(size_t at) { return slots_[(first_slot_ + at) % slots_.size()]; }
  void copy(Slot& slot, const WeightRange& whole, const WeightRange& range);
  void fetch_ahead();

  std::vector<WeightRange> ranges_;
  std::vector<Buffer> residents_;
  std::vector<std::byte*> addresses_;  // per range; null: it streams
  std::vector<Slot> slots_;
  // The ranges that stream: those of this pass, then those that every pass begins with.
  std::vector<Turn> order_;
  size_t first_slot_ = 0;  // slot of order_[0]
  size_t fetched_ = 0;     // count in order_: copies are under way, or wait for fetch()
  size_t taken_ = 0;       // count in order_
  size_t used_ = 0;        // count in order_: done with
  int64_t copied_bytes_ = 0;
  std::unique_ptr<Stream> copies_;  // last: it uses the buffers
};

}  // namespace megatrain
