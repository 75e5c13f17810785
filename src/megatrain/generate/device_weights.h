// The weights of a model on the device, for passes that only read them: some ranges stay, the rest come through slots
// on a stream of their own, the next while some are computed on. Weights that live on disk are read when they are
// copied, and packed ones are unpacked by the host then.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "megatrain/device/device.h"
#include "megatrain/store/record.h"

namespace megatrain {

// Bytes [begin, begin + bytes) of a record's weights as they compute.
struct WeightRange {
  const LayerRecord* record;
  int64_t begin;
  int64_t bytes;
};

class DeviceWeights {
 public:
  // What stays within `lent` and `memory_bytes` of the device's own; ranges that lie on the device, or in place, cost
  // nothing. `in_place`: host memory is memory the device computes on. Ranges are copied now: the records' weights must
  // not change while this lives. A pass takes no more than `at_once` ranges before it is done with the first of them;
  // there is one slot more.
  DeviceWeights(Device& device, std::vector<WeightRange> ranges, int64_t memory_bytes, bool in_place, int64_t at_once,
                std::span<std::byte> lent = {});

  // With less than this, lent or own, nothing runs; with what all ranges need together everything stays.
  static int64_t least_bytes(const std::vector<WeightRange>& ranges, bool in_place, int64_t at_once);
  // The same of ranges with so many bytes, none of which lies ready: with any others among them it is no less.
  static int64_t least_bytes(const std::vector<int64_t>& coming, int64_t at_once);

  // A pass takes ranges in ascending order, each of these once, and is done with them in that order. Of one that is
  // `chosen` from only what fetch() says comes, and not before.
  struct Turn {
    size_t range;
    bool chosen = false;
    bool operator==(const Turn&) const = default;
  };
  void begin_pass(std::vector<Turn> turns);
  // Its address, of which work enqueued on `compute` from now on may read until done().
  std::byte* take(Stream& compute, size_t range);
  // Some bytes of a range that was taken and is chosen from; likewise from now on.
  void fetch(Stream& compute, size_t range, int64_t begin, int64_t bytes);
  bool streams(size_t range) const { return addresses_[range] == nullptr; }
  void done(Stream& compute, size_t range);

  int64_t ranges() const { return static_cast<int64_t>(ranges_.size()); }
  int64_t resident_ranges() const;                        // copied or in place
  int64_t copied_bytes() const { return copied_bytes_; }  // by passes, so far
  Stream& copies() { return *copies_; }

 private:
  struct Slot {
    Buffer buffer;
    std::vector<std::byte> staged;  // weights from disk on their way
    std::unique_ptr<Event> arrived, free;
    bool used = false;
  };

  Slot& slot_of(size_t at) { return slots_[(first_slot_ + at) % slots_.size()]; }
  void copy(Slot& slot, const WeightRange& whole, const WeightRange& range);
  void fetch_ahead();

  std::vector<WeightRange> ranges_;
  std::vector<Buffer> residents_;
  std::vector<std::byte*> addresses_;  // of each range; null: it streams
  std::vector<Slot> slots_;
  // The ranges that stream: those of this pass, then those with which every pass begins.
  std::vector<Turn> order_;
  size_t first_slot_ = 0;  // of order_[0]
  size_t fetched_ = 0;     // of order_: copies are under way, or wait for fetch()
  size_t taken_ = 0;       // of order_
  size_t used_ = 0;        // of order_: done with
  int64_t copied_bytes_ = 0;
  std::unique_ptr<Stream> copies_;  // last: it uses the buffers
};

}  // namespace megatrain
