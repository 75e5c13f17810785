#include "megatrain/generate/device_weights.h"

#include <algorithm>

#include "megatrain/base/error.h"

namespace megatrain {

namespace {

bool lies_ready(const WeightRange& range, bool in_place) {
  return !range.record->weights_on_disk() && (in_place || range.record->tier() == Tier::hbm);
}

// Where a copy reads it: where it lives, or read from disk into `staged`.
const std::byte* source(const WeightRange& range, std::vector<std::byte>& staged) {
  if (!range.record->weights_on_disk()) return range.record->weights() + range.begin;
  staged.resize(static_cast<size_t>(range.bytes));
  range.record->read_weights(range.begin, range.bytes, staged.data());
  return staged.data();
}

struct Need {
  int64_t all = 0;      // bytes of the ranges that do not lie ready
  int64_t largest = 0;  // of them
  int64_t count = 0;
};

Need need_of(const std::vector<WeightRange>& ranges, bool in_place) {
  Need need;
  for (const WeightRange& range : ranges) {
    if (lies_ready(range, in_place)) continue;
    need.all += range.bytes;
    need.largest = std::max(need.largest, range.bytes);
    ++need.count;
  }
  return need;
}

}  // namespace

int64_t DeviceWeights::least_bytes(const std::vector<WeightRange>& ranges, bool in_place, int64_t at_once) {
  const Need need = need_of(ranges, in_place);
  return std::min(need.all, (at_once + 1) * need.largest);
}

DeviceWeights::DeviceWeights(Device& device, std::vector<WeightRange> ranges, int64_t memory_bytes, bool in_place,
                             int64_t at_once)
    : ranges_(std::move(ranges)), slots_(static_cast<size_t>(at_once) + 1), copies_(device.make_stream("weights")) {
  const Need need = need_of(ranges_, in_place);
  const bool all_stay = need.all <= memory_bytes;
  const int64_t staying =
      all_stay ? need.count : (memory_bytes - std::ssize(slots_) * need.largest) / std::max<int64_t>(need.largest, 1);
  ensure(all_stay || staying >= 0, "the slots fit the memory");
  int64_t seen = 0;
  for (const WeightRange& range : ranges_) {
    if (lies_ready(range, in_place)) {
      addresses_.push_back(range.record->weights() + range.begin);
      continue;
    }
    // spread evenly, so that copies have the time of those between them
    const bool stays = (seen + 1) * staying / need.count > seen * staying / need.count;
    ++seen;
    addresses_.push_back(nullptr);
    if (!stays) continue;
    residents_.push_back(device.allocate(static_cast<size_t>(range.bytes), "resident weights"));
    addresses_.back() = residents_.back().data();
    std::vector<std::byte> staged;
    copies_->copy(addresses_.back(), source(range, staged), static_cast<size_t>(range.bytes));
    if (!staged.empty()) copies_->synchronize();
  }
  if (!all_stay) {
    for (Slot& slot : slots_) {
      slot.buffer = device.allocate(static_cast<size_t>(need.largest), "weight slots");
      slot.arrived = device.make_event();
      slot.free = device.make_event();
    }
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
  // what the pass before fetched ahead is kept when this pass begins with it
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

// Into the place of `range` in the slot that holds `whole`.
void DeviceWeights::copy(Slot& slot, const WeightRange& whole, const WeightRange& range) {
  if (!slot.staged.empty()) slot.arrived->block();  // what the slot staged before has left
  const std::byte* from = source(range, slot.staged);
  if (slot.used) copies_->wait(*slot.free);
  copies_->copy(slot.buffer.data() + (range.begin - whole.begin), from, static_cast<size_t>(range.bytes));
  copies_->record(*slot.arrived);
  copied_bytes_ += range.bytes;
}

// A slot is overwritten only by the range as many after the one that was in it as there are slots, once that one is
// done.
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
