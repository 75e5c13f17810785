#include "megatrain/train/planned_machine.h"

#include <algorithm>

#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/host/memory.h"
#include "megatrain/host/thread_team.h"
#include "megatrain/machine/machines.h"
#include "megatrain/machine/profile_cache.h"
#include "megatrain/ops/attention_buckets.h"
#include "megatrain/ops/attention_cut.h"
#include "megatrain/ops/delta_segments.h"
#include "megatrain/ops/note_cost.h"
#include "megatrain/ops/ssd_segments.h"
#include "megatrain/plan/budgets.h"
#include "megatrain/store/pieces.h"
#include "megatrain/train/algorithms.h"

namespace megatrain {

namespace {

// Estimates for a CUDA device that is not present. On an H200 the context took 350 MiB, the process 700 MiB.
constexpr int64_t kContextBytes = 448 * kMiB, kProcessBytes = kGiB;
// Kernels are loaded when they are first called; this took 130 MiB on the device and 100 MiB on the host.
constexpr int64_t kLoadedLater = 192 * kMiB;
constexpr int64_t kHostMargin = 2 * kGiB, kDeviceMargin = 512 * kMiB;

bool is_thin(const View& weight) {
  constexpr int64_t kMost = 64;  // the rank of an adapter
  return std::min(weight.rows, weight.cols) <= kMost && !weight.empty();
}
bool is_thin(const ExpertWeights& weight) { return is_thin(weight.first); }

// Whether this is a matmul with a weight as narrow as an adapter's.
bool is_thin(const OpNote& note) {
  return std::visit(
      [](const auto& call) {
        if constexpr (requires { call.grad_weight; }) return is_thin(call.grad_weight);
        if constexpr (requires { call.weight; }) return is_thin(call.weight);
        return false;
      },
      note);
}

}  // namespace

int64_t host_budget(int64_t bytes) {
  return std::max<int64_t>(bytes - bytes / 32 - kHostMargin, 0);  // 1/32: the kernel's tables and other processes
}

int64_t disk_budget(int64_t bytes) { return bytes / 10 * 9; }

PlannedMachine this_machine(const Machine& machine, int64_t threads) {
  const Device& device = *machine.device;
  PlannedMachine planned{
      .profile = machine_profile(device), .gpu = device.kind() == DeviceKind::cuda, .ops = machine.ops.get()};
  const int64_t host = std::max<int64_t>(host_memory_available() - kHostMargin, 0);
  if (planned.gpu) {
    planned.device_base_bytes = device.memory_used() + kLoadedLater;
    planned.host_base_bytes = host_memory_used() + kLoadedLater + team_size(threads) * kPieceScratchBytes;
    planned.budgets.gpu_bytes = device.memory_used() + device.memory_free() - kDeviceMargin;
    planned.budgets.host_bytes = host + host_memory_used();  // used by the whole process
  } else {
    planned.budgets.gpu_bytes = planned.budgets.host_bytes = host / 2;
    planned.budgets.device_is_host = true;
  }
  return planned;
}

PlannedMachine machine_from_profile(const MachineProfile& machine) {
  const int64_t host = host_budget(machine.host_bytes);
  Budgets limits{.gpu_bytes = machine.hbm_bytes, .host_bytes = machine.host_bytes, .disk_bytes = machine.disk_bytes};
  if (machine.shared_cores > 0) {  // its CPU is the device
    limits.gpu_bytes = machine.host_bytes;
    const Budgets halves{.gpu_bytes = host / 2, .host_bytes = host / 2, .device_is_host = true};
    return {.profile = machine, .gpu = false, .budgets = halves, .limits = limits};
  }
  return {.profile = machine,
          .gpu = true,
          .budgets = {.gpu_bytes = std::max<int64_t>(machine.hbm_bytes - kDeviceMargin, 0), .host_bytes = host},
          .limits = limits,
          .device_base_bytes = kContextBytes + kLoadedLater,
          .host_base_bytes = kProcessBytes};
}

int64_t cuda_scratch_bound(const OpsShape& shape) {
  constexpr int64_t kSeen = 640 * kMiB;  // an H200 needed 561 MiB for most shapes
  int64_t bytes = kSeen;
  if (shape.generating) return bytes;  // only the workspace of GEMMs
  bytes = std::max({bytes, delta_rule_scratch_bytes(shape.delta_rule), ssd_scratch_bytes(shape.ssd)});
  const bool ragged = shape.max_documents * shape.longest_document != shape.tokens;
  for (const AttentionShape& attention : shape.attention) {
    if (attention.head_dim > kLongestCutHead) continue;  // needs one float per token and head
    bytes = std::max({bytes, attention_backward_bytes(attention, 1, shape.longest_document),
                      attention_forward_bytes(attention, 1, shape.longest_document)});
    // a shorter document may need more, because tiles are equal parts
    const int64_t whole = std::min(shape.longest_document, attention_tile(attention));
    if (ragged) bytes = std::max(bytes, attention_backward_bytes(attention, 1, whole));
    if (ragged) {
      for (const int64_t length : bucket_lengths(whole, true))
        bytes = std::max(bytes, attention_backward_bytes(attention, ragged_cut(attention, length), length));
    }
  }
  return bytes;
}

MachineProfile machine_profile(const Device& device) {
  if (const auto measured = ProfileCache(device).load()) return *measured;
  if (device.kind() == DeviceKind::cuda) return machine_for_device(device.name());
  const double cores = static_cast<double>(usable_cpus().size());
  return {.flops_per_s = 30e9 * cores,
          .hbm_bytes_per_s = 10e9 * cores,
          .h2d_bytes_per_s = 8e9,
          .d2h_bytes_per_s = 8e9,
          .dram_bytes_per_s = 10e9 * cores,
          .updates_on_device = false,
          .shared_cores = static_cast<int64_t>(cores),
          .name = "typical CPU"};
}

MachineProfile profile_for(const MachineProfile& machine, const TrainConfig& config, const ModelConfig& model,
                           const RunIdentity& identity) {
  const bool measured = !machine.matmul_rates.empty() && !machine.attention_rates.empty();
  // If attention and expert GEMMs were not measured, their rates are these shares of the dense layers' rate, taken from
  // measured steps on an H200. Attention reached 479 of 640 TFLOP/s at 64K, 512K and 1M tokens with Qwen2.5-7B's shape,
  // and 315 with sequences of 1024. The experts' share is from gpt-oss-20b and Qwen3-30B-A3B, and includes small ops.
  constexpr double kExpertShare = 0.7;
  // Matmuls with adapters are thin and bound by memory. With adapters of the experts of gpt-oss-20b and Qwen3-30B-A3B
  // they took 1.1 and 1.9 times what their bytes take (docs/planning.md).
  constexpr double kThinShare = 0.6;
  // The chunks of a recurrence, of the ops of one delta net on an H200: 29.5 of 640 TFLOP/s.
  constexpr double kRecurrenceShare = 0.046;
  static const RateTable kAttentionShares = {{1024, 0.49}, {4096, 0.75}};
  const auto attention_share = [&](int64_t longest) {  // on CPUs attention was not slower
    return machine.updates_on_device ? rate_at(kAttentionShares, static_cast<double>(longest)) : 1;
  };
  const auto seconds_of = [&](const OpNote& note, double flops) {
    const auto length = attention_length(note), experts = expert_count(note);
    if (recurrence_flops(note) > 0) return 0.0;  // counted by itself
    const double moving = note_bytes(note) / machine.hbm_bytes_per_s;
    if (flops == 0) return measured || experts ? moving : 0;
    if (length) {
      return flops / (measured ? rate_at(machine.attention_rates, static_cast<double>(*length))
                               : machine.flops_per_s * attention_share(*length));
    }
    double rate = measured ? rate_at(machine.matmul_rates, flops) : machine.flops_per_s;
    if (experts && machine.expert_rates.empty()) rate *= kExpertShare;
    if (experts && !machine.expert_rates.empty())
      rate = rate_at(machine.expert_rates, flops / static_cast<double>(*experts));
    const bool thin = machine.updates_on_device && is_thin(note);
    return std::max(flops / rate, thin ? moving / kThinShare : 0);
  };
  struct Sum {
    double flops = 0, seconds = 0;
  } all, attention;
  for (const OpNote& note : notes_of(config, model, identity, true).keeping()) {
    const double flops = note_flops(note), seconds = seconds_of(note, flops);
    all = {all.flops + flops, all.seconds + seconds};
    if (attention_length(note)) attention = {attention.flops + flops, attention.seconds + seconds};
  }
  MachineProfile fitted = machine;
  fitted.flops_per_s = all.flops / all.seconds;
  fitted.attention_flops_per_s = attention.flops / attention.seconds;
  fitted.recurrence_flops_per_s = machine.flops_per_s * (machine.updates_on_device ? kRecurrenceShare : 1);
  return fitted;
}

}  // namespace megatrain
