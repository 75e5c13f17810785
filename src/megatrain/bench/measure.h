// Measures the speeds of this machine: `bench` prints them, and `doctor` saves them.
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

  // Bytes per second, directions summed, in pieces of `piece` bytes: the best of a few rounds.
  double rate(int64_t piece, bool h2d, bool d2h);

  void start(int64_t piece);  // enqueues copies of all the memory in both directions
  void wait();

 private:
  void enqueue(int64_t piece, bool h2d, bool d2h);

  int64_t bytes_;
  std::unique_ptr<Stream> down_, up_;
  Buffer host_from_, host_to_, device_from_, device_to_;
};

// Host memory under the optimizer's mix of reads and writes. `bytes` is the memory allocated.
inline constexpr int64_t kDramMovedBytes = 26;  // per parameter
struct DramRates {
  int64_t bytes = 0;
  int threads = 0;
  double plain_bytes_per_s = 0;  // a loop with hardly any computation
  double adamw_bytes_per_s = 0;
  double beside_dma_bytes_per_s = 0;  // AdamW during copies in both directions; 0 without a link
  double int8_updates_per_s = 0;      // parameters, AdamW with int8 moments
};
// `link` is kept busy during the last measurement; nullptr if there is none.
DramRates measure_dram(int64_t bytes, int64_t threads, LinkTimer* link);

// A scratch file in `directory` (io/scratch_file.h), with the queues of a run.
struct DiskRates {
  bool direct = false;
  int64_t bytes = 0;  // written, and read
  double write_bytes_per_s = 0, read_bytes_per_s = 0;
  double both_bytes_per_s = 0;  // both directions at once, summed
};
// Each pass ends after `most_s` seconds and counts what was done until then.
DiskRates measure_disk(const std::string& directory, int64_t bytes, double most_s);

// GEMMs, attention and small ops, measured with the device's own ops on the calls of layers of several sizes.
struct ComputeRates {
  RateTable matmuls, experts, attention;
  double small_bytes_per_s = 0;  // norms, RoPE, activations and the loss
  double layer_flops_per_s = 0;  // complete layers of the largest size, small ops included
};
// The calls of a layer and a head, with the number of times a micro-batch makes each. The functions below return the
// sizes that are timed on a kind of device, from small to large.
struct TimedLayer {
  struct Call {
    OpNote note;
    int64_t times;
  };
  std::vector<Call> calls;
  int64_t seq_len;
};
std::vector<TimedLayer> dense_layers(DeviceKind kind);
std::vector<TimedLayer> expert_matmuls(DeviceKind kind);  // only the expert GEMMs of an MoE layer
// only the attention of a layer, over a sequence of many tiles
std::vector<TimedLayer> long_attention(DeviceKind kind);

// Skips the larger sizes if `most_s` seconds would not be enough.
ComputeRates measure_compute(Machine& machine, double most_s);

// Measures all of them: the profile of this machine, in under 20 s. `directory` is on the scratch disk.
MachineProfile measure_machine(Machine& machine, int64_t threads, const std::string& directory);

}  // namespace megatrain
