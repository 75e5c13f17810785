// What `bench` prints and `doctor` keeps: speeds of this machine, each by its own measurement.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/device/device.h"
#include "megatrain/machine/machine_profile.h"
#include "megatrain/ops/op_note.h"
#include "megatrain/train/setup.h"

namespace megatrain {

// Copies between registered host memory and the device.
class LinkTimer {
 public:
  LinkTimer(Device& device, int64_t bytes);

  // Bytes a second, the sum of the ways, in pieces of `piece` bytes: the best of a few rounds.
  double rate(int64_t piece, bool h2d, bool d2h);

  void start(int64_t piece);  // enqueues both ways once over all of the memory
  void wait();

 private:
  void enqueue(int64_t piece, bool h2d, bool d2h);

  int64_t bytes_;
  std::unique_ptr<Stream> down_, up_;
  Buffer host_from_, host_to_, device_from_, device_to_;
};

// Host memory under the optimizer's mix of reads and writes. `bytes` are held.
inline constexpr int64_t kDramMovedBytes = 26;  // a parameter
struct DramRates {
  int64_t bytes = 0;
  int threads = 0;
  double plain_bytes_per_s = 0;  // of a loop that hardly computes
  double adamw_bytes_per_s = 0;
  double beside_dma_bytes_per_s = 0;  // AdamW while copies go both ways; 0 without a link
  double int8_updates_per_s = 0;      // parameters, AdamW with int8 moments
};
// `link` is busy during the last measurement; nullptr: there is none.
DramRates measure_dram(int64_t bytes, int64_t threads, LinkTimer* link);

// A scratch file in `directory` (io/scratch_file.h), by the queues that a run uses.
struct DiskRates {
  bool direct = false;
  int64_t bytes = 0;  // written, and read
  double write_bytes_per_s = 0, read_bytes_per_s = 0;
  double both_bytes_per_s = 0;  // the sum of the ways at once
};
// Each pass ends after `most_s` seconds, with what was done until then.
DiskRates measure_disk(const std::string& directory, int64_t bytes, double most_s);

// Products, attention and the small ops, by the device's own ops on the calls of layers of several sizes.
struct ComputeRates {
  RateTable products, experts, attention;
  double small_bytes_per_s = 0;  // of norms, RoPE, activations and the loss
  double layer_flops_per_s = 0;  // of whole layers of the largest size, small ops included
};
// The calls of a layer and a head, and how often a micro-batch makes each; of the sizes that are timed on a kind of
// device, from small to large.
struct TimedLayer {
  struct Call {
    OpNote note;
    int64_t times;
  };
  std::vector<Call> calls;
  int64_t seq_len;
};
std::vector<TimedLayer> dense_layers(DeviceKind kind);
std::vector<TimedLayer> expert_products(DeviceKind kind);  // of a layer with experts, their products alone
std::vector<TimedLayer> long_attention(DeviceKind kind);   // of a layer, attention alone over a sequence of many tiles

// Leaves out the larger sizes when `most_s` seconds would not be enough.
ComputeRates measure_compute(Machine& machine, double most_s);

// All of them: the profile of this machine, in under 20 s. The scratch disk is that of `directory`.
MachineProfile measure_machine(Machine& machine, int64_t threads, const std::string& directory);

}  // namespace megatrain
