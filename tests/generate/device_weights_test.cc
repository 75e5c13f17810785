// Streamed weights arrive before they are read and stay until they have been, for any amount of memory and any delay.
#include "megatrain/generate/device_weights.h"

#include <chrono>
#include <cstring>
#include <thread>

#include "megatrain/base/rng.h"
#include "tests/generate/tiny_models.h"

namespace megatrain::generation {
namespace {

// Delays every stream that waits for it.
class Delay {
 public:
  explicit Delay(Device& device) : stream_(device.make_host_stream("delay")), event_(device.make_host_event()) {
    stream_->run([] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    stream_->record(*event_);
  }
  ~Delay() { stream_->synchronize(); }
  void hold(Stream& stream) { stream.wait(*event_); }

 private:
  std::unique_ptr<HostStream> stream_;
  std::unique_ptr<Event> event_;
};

class Passes {
 public:
  Passes(TinyModel& model, const std::vector<WeightRange>& ranges, int64_t memory_bytes, size_t at_once)
      : device_(*model.device),
        ranges_(ranges),
        at_once_(at_once),
        weights_(device_, ranges, memory_bytes, false, static_cast<int64_t>(at_once)),
        compute_(device_.make_stream("compute")) {}

  // Reads ranges chosen by the seed, a few held at once. The bytes read must be the records'.
  void run(uint64_t seed) {
    std::vector<DeviceWeights::Turn> turns;
    for (size_t range = 0; range < ranges_.size(); ++range) {
      if (random_below(seed, 1, range, 4) > 0)
        turns.push_back({.range = range, .chosen = random_below(seed, 2, range, 3) == 0});
    }
    Delay delay(device_);
    delay.hold(seed % 2 ? *compute_ : weights_.copies());
    std::vector<std::vector<std::byte>> read(turns.size());
    weights_.begin_pass(turns);
    for (size_t i = 0; i < turns.size(); ++i) {
      if (i >= at_once_) weights_.done(*compute_, turns[i - at_once_].range);
      read[i] = this->read(turns[i]);
    }
    for (size_t i = turns.size() - std::min(at_once_, turns.size()); i < turns.size(); ++i)
      weights_.done(*compute_, turns[i].range);
    compute_->synchronize();
    weights_.copies().synchronize();  // the fetches ahead of the next pass, and their delay
    for (size_t i = 0; i < turns.size(); ++i) {
      const WeightRange& range = ranges_[turns[i].range];
      EXPECT_EQ(std::memcmp(read[i].data(), range.record->weights() + range.begin, read[i].size()), 0)
          << "range " << turns[i].range << " of pass " << seed;
    }
  }

  const DeviceWeights& weights() const { return weights_; }

 private:
  // The result is filled in once the stream is done.
  std::vector<std::byte> read(const DeviceWeights::Turn& turn) {
    const int64_t bytes = ranges_[turn.range].bytes, half = bytes / 2;
    const std::byte* at = weights_.take(*compute_, turn.range);
    if (turn.chosen && weights_.streams(turn.range)) {
      weights_.fetch(*compute_, turn.range, 0, half);
      weights_.fetch(*compute_, turn.range, half, bytes - half);
    }
    std::vector<std::byte> read(static_cast<size_t>(bytes));
    compute_->copy(read.data(), at, read.size());
    return read;
  }

  Device& device_;
  const std::vector<WeightRange>& ranges_;
  size_t at_once_;
  DeviceWeights weights_;
  std::unique_ptr<Stream> compute_;  // last: it reads the weights
};

TEST(DeviceWeights, EveryWindowReadsTheRecordsBytesWhoeverIsSlow) {
  TinyModel model("llama_packed", {{"num_hidden_layers", 5}});
  std::vector<WeightRange> ranges;  // whole records, and one in two pieces of different size
  int64_t all = 0, largest = 0;
  for (size_t r = 1; r + 1 < model.records.size(); ++r) {
    const int64_t bytes = model.records[r].weight_bytes(), cut = r == 2 ? bytes / 3 : bytes;
    ranges.push_back({&model.records[r], 0, cut});
    if (cut < bytes) ranges.push_back({&model.records[r], cut, bytes - cut});
    all += bytes;
    largest = std::max(largest, bytes);
  }
  for (size_t at_once = 1; at_once <= 3; ++at_once) {
    const int64_t least = DeviceWeights::least_bytes(ranges, false, static_cast<int64_t>(at_once));
    int64_t streamed = 0;
    for (int64_t memory = least; memory < all + largest; memory += largest) {
      Passes passes(model, ranges, memory, at_once);
      for (uint64_t seed = 0; seed < 8; ++seed) passes.run(seed);
      streamed += passes.weights().copied_bytes();
    }
    EXPECT_GT(streamed, 0);
  }
}

}  // namespace
}  // namespace megatrain::generation
