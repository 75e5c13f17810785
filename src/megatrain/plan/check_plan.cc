// Whether a plan makes sense for a workload, and whether it fits the budgets.
#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/plan/inventory.h"

namespace megatrain {

int64_t Plan::leaving(const Workload& w) const {
  int64_t count = 0;
  for (int64_t record = 1; record < w.head_record(); ++record) count += w.is_trained(record) && gradient_leaves(record);
  return count;
}

namespace {

std::string largest_shares(const std::array<int64_t, kResourceKinds>& bytes) {
  std::vector<std::pair<int64_t, ResourceKind>> sorted;
  for (int kind = 0; kind < kResourceKinds; ++kind)
    sorted.emplace_back(-bytes[static_cast<size_t>(kind)], static_cast<ResourceKind>(kind));
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (size_t i = 0; i < 4; ++i)
    text += fmt::format("{}{} {}", i ? ", " : "", resource_name(sorted[i].second), format_bytes(-sorted[i].first));
  return text;
}

// What to do about the disk where host memory is short; nothing where no disk helps.
std::string disk_remedy(const Budgets& b, std::optional<int64_t> disk) {
  if (!disk || *disk <= b.disk_bytes) return "";
  if (b.disk_bytes > 0)
    return fmt::format(", raise memory.nvme from {} to {}", format_bytes(b.disk_bytes), format_bytes_up(*disk));
  return fmt::format(", set memory.nvme to {} and memory.nvme_path to a directory on an NVMe drive",
                     format_bytes_up(*disk));
}

}  // namespace

void check_fit(const Workload& w, const Plan& plan, const Budgets& b, std::optional<int64_t> least_disk) {
  const MemoryNeed need = memory_need(w, plan);
  if (need.hbm_bytes() > b.gpu_bytes) {
    const std::string shorter = w.sequences == 1
                                    ? fmt::format("seq_len (now {}; a micro-batch is one sequence)", w.micro_tokens)
                                    : fmt::format("micro_batch (now {} tokens a micro-batch), seq_len", w.micro_tokens);
    fail(ExitCode::cannot_fit,
         fmt::format("this run needs {} of {} and the budget is {}; the largest shares are {}. {}"
                     "Raise memory.gpu to {}, where {} has so much, or lower {}, mlp_chunk or head_chunk",
                     format_bytes(need.hbm_bytes()),
                     b.device_is_host ? "host memory for the CPU to compute in (memory.gpu)" : "device memory",
                     format_bytes(b.gpu_bytes), largest_shares(need.hbm),
                     w.whole_attention ? "Attention with a sliding window is not cut into tiles, so the scratch of its "
                                         "backward grows with the square of seq_len. "
                                       : "",
                     format_bytes_up(need.hbm_bytes()), b.device_is_host ? "this machine" : "the GPU", shorter));
  }
  if (need.host_bytes() > b.host_bytes) {
    const std::string beside =
        need.disk_bytes() > 0 ? fmt::format(" beside {} on disk", format_bytes(need.disk_bytes())) : "";
    fail(ExitCode::cannot_fit,
         fmt::format("this run needs {} of host memory{} and the budget is {}; the largest shares are {}. "
                     "Raise memory.host to {}{}, or train a smaller model or fewer tokens a step",
                     format_bytes(need.host_bytes()), beside, format_bytes(b.host_bytes), largest_shares(need.host),
                     format_bytes_up(need.host_bytes()), disk_remedy(b, least_disk)));
  }
  if (need.disk_bytes() > 0 && b.disk_bytes == 0) {
    fail(ExitCode::cannot_fit,
         fmt::format("the plan keeps {} on disk and this run has none; set memory.nvme_path to a directory on an NVMe "
                     "drive with so much free, or make a new plan with 'megatrain plan'",
                     format_bytes_up(need.disk_bytes())));
  }
  if (need.disk_bytes() > b.disk_bytes) {
    fail(ExitCode::cannot_fit,
         fmt::format("the plan keeps {} on disk and the budget is {}; raise memory.nvme to {}, or make a new plan with "
                     "'megatrain plan'",
                     format_bytes(need.disk_bytes()), format_bytes(b.disk_bytes), format_bytes_up(need.disk_bytes())));
  }
}

void check_plan(const Workload& w, const Plan& p) {
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) fail_config("the plan does not fit this run: " + what + "; make a new one with 'megatrain plan'");
  };
  require(p.experts_per_record == w.experts_per_record,
          fmt::format("its records hold {} experts, the run's {}", p.experts_per_record, w.experts_per_record));
  const bool several = w.layer_records() > w.layer_phases();
  const char *blocks = several ? "records" : "blocks", *layers = several ? "records" : "layers";
  // Sentences are made for what fails alone: plans are checked by the hundred.
  const auto require_of = [&](bool holds, int64_t record, const char* what) {
    if (!holds) require(false, describe_record(w, record) + what);
  };
  const int64_t at_once = w.records_at_once();
  require(p.slots >= at_once && p.slots <= std::max(at_once, w.layer_records()),
          fmt::format("slots is {}, expected {} to {}", p.slots, at_once, w.layer_records()));
  const auto covers = [&](const char* what, size_t size, int64_t expected, const char* of) {
    require(static_cast<int64_t>(size) == expected,
            fmt::format("it says {} of {} {}, the model has {}", what, size, of, expected));
  };
  covers("where the weights are", p.weights.size(), w.layer_records(), blocks);
  covers("where the state is", p.state.size(), w.record_count(), layers);
  covers("what visits the device", p.visits.size(), w.layer_records(), blocks);
  covers("what to keep", p.keep.size(), w.layer_phases(), "blocks");
  covers("where the inputs wait", p.boundary.size(), w.layer_phases(), "blocks");
  covers("where the kept outputs wait ('outputs')", p.outputs.size(), w.layer_phases(), "blocks");
  for (int64_t phase = 1; phase < w.head_phase(); ++phase) {
    if (p.outputs[static_cast<size_t>(phase - 1)] == Tier::hbm || p.keep_of(phase) == Keep::outputs) continue;
    require(false,
            fmt::format("'outputs' says \"{}\" of block {}, which keeps {}: only outputs may wait elsewhere "
                        "than on the device",
                        tier_name(p.outputs[static_cast<size_t>(phase - 1)]), phase, keep_name(p.keep_of(phase))));
  }
  const bool away = p.outputs_wait_elsewhere();
  require(p.output_slots >= (away ? 2 : 0) && p.output_slots <= (away ? w.layer_phases() + 3 : 0),
          fmt::format("output_slots is {}, expected {}", p.output_slots,
                      away ? fmt::format("2 to {}", w.layer_phases() + 3) : "0: all kept outputs wait on the device"));
  for (const auto* tiers : {&p.weights, &p.state}) {
    for (const Tier tier : *tiers) require(tier != Tier::disk, "'weights' and 'state' are \"hbm\" or \"host\"");
  }
  covers("whose moments are on disk", p.disk_moments.size(), w.record_count(), layers);
  for (int64_t record = 1; w.alias_records > 0 && record < w.head_record(); ++record) {
    require_of(
        p.streams(record) && !p.moments_on_disk(record) && !p.weights_on_disk(record) && !p.gradient_on_disk(record),
        record, " shares its memory, so it must live on the host and stream");
  }
  int64_t on_disk = 0;
  for (int64_t record = 0; record < w.record_count(); ++record) {
    if (!p.moments_on_disk(record)) continue;
    ++on_disk;
    require(record > 0, "the embedding's moments may not live on disk, as its rows are updated when they are needed");
    require_of(w.is_trained(record) && !p.updated_on_device(record), record,
               "'s moments may live on disk only when it is trained and the host updates it");
  }
  require(p.moment_slabs >= std::min<int64_t>(2, on_disk) && p.moment_slabs <= on_disk,
          fmt::format("moment_slabs is {}, expected {}", p.moment_slabs,
                      on_disk < 2 ? std::to_string(on_disk) : fmt::format("2 to {}", on_disk)));
  covers("whose weights are on disk", p.disk_weights.size(), w.record_count(), layers);
  for (int64_t record = 0; record < w.record_count(); ++record) {
    if (!p.weights_on_disk(record)) continue;
    require_of(
        w.is_layer_record(record) && !p.updated_on_device(record) && p.moments_on_disk(record) == w.is_trained(record),
        record, "'s weights may live on disk only when it is a block that the host updates and has its moments there");
  }
  const int64_t staged = std::count(p.disk_weights.begin(), p.disk_weights.end(), true);
  require(p.weight_slabs >= std::min<int64_t>(1, staged) && p.weight_slabs <= staged,
          fmt::format("weight_slabs is {}, expected {}", p.weight_slabs,
                      staged < 2 ? std::to_string(staged) : fmt::format("1 to {}", staged)));
  covers("where gradients wait", p.gradients.size(), w.record_count(), layers);
  for (int64_t record = 0; record < w.record_count(); ++record) {
    if (p.gradient_of(record) == Tier::host) continue;
    require_of(w.clip && w.is_layer_record(record) && w.is_trained(record) && !p.updated_on_device(record), record,
               "'s gradient may wait elsewhere than in host memory only when gradients are clipped, it "
               "is a trained block and the host updates it");
    require_of(p.gradient_on_disk(record) || leaves_its_place(w, p, record), record,
               "'s gradient may wait on the device only where its block's input was");
  }
  const int64_t elsewhere = p.waiting_elsewhere();
  require(p.gradient_ring >= std::min<int64_t>(2, elsewhere) && p.gradient_ring <= elsewhere,
          fmt::format("gradient_ring is {}, expected {}", p.gradient_ring,
                      elsewhere < 2 ? std::to_string(elsewhere) : fmt::format("2 to {}", elsewhere)));
  for (int64_t record = 1; record < w.head_record(); ++record) {
    require_of(!p.state_on_device(record) || p.weights[static_cast<size_t>(record - 1)] == Tier::hbm, record,
               "'s state is on the device, so its weights must be");
    require_of(!p.visiting(record) || (w.clip && !p.state_on_device(record) && w.is_trained(record)), record,
               "'s state may visit the device only when it lives on the host, is trained and gradients are clipped");
  }
  require(p.boundary_every >= 1 && p.boundary_every <= std::max<int64_t>(1, w.layer_phases()),
          fmt::format("boundary_every is {}, expected 1 to {}", p.boundary_every, w.layer_phases()));
  require(p.boundary_slots >= 2 && p.boundary_slots <= w.layer_phases() + 3,
          fmt::format("boundary_slots is {}, expected 2 to {}", p.boundary_slots, w.layer_phases() + 3));
  const bool stored = p.activations_on_disk();
  require(p.boundary_ring >= (stored ? 1 : 0) && p.boundary_ring <= (stored ? w.micro_batches + 2 : 0),
          fmt::format(
              "boundary_ring is {}, expected {}", p.boundary_ring,
              stored ? fmt::format("1 to {} for block inputs and kept outputs that wait on disk", w.micro_batches + 2)
                     : "0: no block input and no kept output waits on disk"));
  require(p.gradient_slabs >= 1 && p.gradient_slabs <= w.layer_records() + 2,
          fmt::format("gradient_slabs is {}, expected 1 to {}", p.gradient_slabs, w.layer_records() + 2));
  const int64_t visitors = std::count(p.visits.begin(), p.visits.end(), true);
  require(p.visit_slots >= 0 && p.visit_slots <= visitors && (p.visit_slots == 0 || !w.gradients_stay),
          fmt::format("visit_slots is {}, expected {}", p.visit_slots,
                      w.gradients_stay ? "0: gradients are dumped" : fmt::format("0 to {}", visitors)));
  const int64_t waiting = p.waiting_on_host(w);
  require(p.host_gradient_slabs >= std::min<int64_t>(1, waiting) && p.host_gradient_slabs <= waiting &&
              (!w.clip || p.host_gradient_slabs == waiting),
          fmt::format("host_gradient_slabs is {}, expected {}", p.host_gradient_slabs,
                      w.clip ? fmt::format("{} (clipping keeps every gradient until the norm is known)", waiting)
                             : fmt::format("1 to {}", waiting)));
  int64_t total = 0;
  for (const int64_t width : p.sweeps) {
    require(width >= 1, "a sweep has no micro-batch");
    total += width;
  }
  require(total == w.micro_batches,
          fmt::format("its sweeps carry {} micro-batches, the step has {}", total, w.micro_batches));
  require(w.aux_loss == 0 || p.sweeps.size() == 1,
          fmt::format("it has {} sweeps, and moe.aux_loss needs the choices of the whole step before its backward: "
                      "one sweep",
                      p.sweeps.size()));
}

}  // namespace megatrain
