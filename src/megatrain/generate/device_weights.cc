#include "megatrain/generate/device_weights.h"

#include <algorithm>

#include "megatrain/base/error.h"
#include "megatrain/generate/lent_memory.h"

namespace megatrain {

namespace {

bool lies_ready(const WeightRange& range, bool in_place) {
  return !range.record->weights_on_disk() && !range.record->packed() && (in_place || range.record->tier() == Tier::hbm);
}

// Where a copy reads from: the record's own memory, or `staged` if the weights are on disk or packed.
const std::byte* source(const WeightRange& range, std::vector<std::byte>& staged) {
  if (!range.record->weights_on_disk() && !range.record->packed()) return range.record->weights() + range.begin;
  staged.resize(static_cast<size_t>(range.bytes));
  range.record->read_weights(range.begin, range.bytes, staged.data());
  return staged.data();
}

// Sizes of the ranges that must be copied.
std::vector<int64_t> coming_of(const std::vector<WeightRange>& ranges, bool in_place) {
  std::vector<int64_t> coming;
  for (const WeightRange& range : ranges) {
    if (!lies_ready(range, in_place)) coming.push_back(range.bytes);
  }
  return coming;
}

int64_t largest_of(const std::vector<int64_t>& coming) {
  return coming.empty() ? 0 : *std::max_element(coming.begin(), coming.end());
}

// The memory left as LentMemory hands out pieces.
struct Room {
  int64_t lent, own;

  void take(int64_t bytes) {
    if (const int64_t piece = LentMemory::piece_bytes(bytes); piece <= lent) {
      lent -= piece;
    } else {
      own -= bytes;
    }
  }
};

}  // namespace

int64_t DeviceWeights::least_bytes(const std::vector<int64_t>& coming, int64_t at_once) {
  int64_t all = 0;
  for (const int64_t bytes : coming) all += LentMemory::piece_bytes(bytes);
  return std::min(all, (at_once + 1) * LentMemory::piece_bytes(largest_of(coming)));
}

int64_t DeviceWeights::least_bytes(const std::vector<WeightRange>& ranges, bool in_place, int64_t at_once) {
  return least_bytes(coming_of(ranges, in_place), at_once);
}

DeviceWeights::DeviceWeights(Device& device, std::vector<WeightRange> ranges, int64_t memory_bytes, bool in_place,
                             int64_t at_once, std::span<std::byte> lent)
    : ranges_(std::move(ranges)), slots_(static_cast<size_t>(at_once) + 1), copies_(device.make_stream("weights")) {
  const std::vector<int64_t> coming = coming_of(ranges_, in_place);
  const int64_t count = std::ssize(coming), largest = largest_of(coming);
  const Room whole{.lent = std::ssize(lent), .own = memory_bytes};
  Room with_all = whole, with_slots = whole;
  for (const int64_t bytes : coming) with_all.take(bytes);
  const bool all_stay = with_all.own >= 0;
  for (size_t slot = 0; slot < slots_.size(); ++slot) with_slots.take(largest);
  ensure(all_stay || with_slots.own >= 0, "the slots fit the memory");
  LentMemory memory(device, lent);
  int64_t staying = count;
  if (!all_stay) {
    staying = with_slots.lent / LentMemory::piece_bytes(largest) + with_slots.own / largest;
    for (Slot& slot : slots_) {
      slot.buffer = memory.take(largest, "weight slots");
      slot.arrived = device.make_event();
      slot.free = device.make_event();
    }
  }
  int64_t seen = 0;
  for (const WeightRange& range : ranges_) {
    if (lies_ready(range, in_place)) {
      addresses_.push_back(range.record->weights() + range.begin);
      continue;
    }
    // spread evenly, so that a copy can overlap the ranges in between
    const bool stays = (seen + 1) * staying / count > seen * staying / count;
    ++seen;
    addresses_.push_back(nullptr);
    if (!stays) continue;
    residents_.push_back(memory.take(range.bytes, "resident weights"));
    addresses_.back() = residents_.back().data();
    std::vector<std::byte> staged;
    copies_->copy(addresses_.back(), source(range, staged), static_cast<size_t>(range.bytes));
    if (!staged.empty()) copies_->synchronize();
  }
  copies_->synchronize();
}

int64_t DeviceWeights::resident_ranges() const {
  return std::count_if(addresses_.begin(), addresses_.end(), [](const std::byte* at) { return at != nullptr; });
}

void DeviceWeights::begin_pass(std::vector<Turn> turns) {
  std::erase_if(turns, [&](const Turn& turn) { return !streams(turn.range); });
  std::vector<Turn> order = turns;
  for (size_t i = 0; i < turns.size() && i < slots_.size(); ++i) order.push_back(turns[i]);
  // keep what the last pass prefetched if this pass begins with it
  const size_t ahead = fetched_ - used_;
  const bool kept =
      ahead <= order.size() && std::equal(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(ahead),
                                          order_.begin() + static_cast<std::ptrdiff_t>(used_));
  first_slot_ = (first_slot_ + used_) % slots_.size();
  order_ = std::move(order);
  taken_ = used_ = 0;
  fetched_ = kept ? ahead : 0;
  fetch_ahead();
}

// Copies `range` to its position in the slot that holds `whole`.
void DeviceWeights::copy(Slot& slot, const WeightRange& whole, const WeightRange& range) {
  if (!slot.staged.empty()) slot.arrived->block();  // the slot's previous staged data has been copied
  const std::byte* from = source(range, slot.staged);
  if (slot.used) copies_->wait(*slot.free);
  copies_->copy(slot.buffer.data() + (range.begin - whole.begin), from, static_cast<size_t>(range.bytes));
  copies_->record(*slot.arrived);
  copied_bytes_ += range.bytes;
}

// A slot is reused only by the range as many positions later as there are slots, once the former one is done.
void DeviceWeights::fetch_ahead() {
  for (; fetched_ < order_.size() && fetched_ < used_ + slots_.size(); ++fetched_) {
    const Turn& turn = order_[fetched_];
    if (!turn.chosen) copy(slot_of(fetched_), ranges_[turn.range], ranges_[turn.range]);
  }
}

std::byte* DeviceWeights::take(Stream& compute, size_t range) {
  if (!streams(range)) return addresses_[range];
  ensure(taken_ < fetched_ && order_[taken_].range == range, "a pass takes its weights in the order it gave");
  const bool chosen = order_[taken_].chosen;
  Slot& slot = slot_of(taken_++);
  if (!chosen) compute.wait(*slot.arrived);
  return slot.buffer.data();
}

void DeviceWeights::fetch(Stream& compute, size_t range, int64_t begin, int64_t bytes) {
  size_t at = used_;
  while (at < taken_ && order_[at].range != range) ++at;
  ensure(at < taken_ && order_[at].chosen, "what is chosen from a range comes while it is taken");
  const WeightRange& whole = ranges_[range];
  copy(slot_of(at), whole, {whole.record, whole.begin + begin, bytes});
  compute.wait(*slot_of(at).arrived);
}

void DeviceWeights::done(Stream& compute, size_t range) {
  if (!streams(range)) return;
  Slot& slot = slot_of(used_);
  compute.record(*slot.free);
  slot.used = true;
  ++used_;
  fetch_ahead();
}

}  // namespace megatrain
