#include "megatrain/plan/check_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/plan/describe.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/slot_rings.h"

namespace megatrain {

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

// Advice about the disk if host memory is short; empty if no amount of disk helps.
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
                     "Raise memory.gpu to {} if {} has that much, or lower {}, mlp_chunk or head_chunk",
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
        need.disk_bytes() > 0 ? fmt::format(" besides {} on disk", format_bytes(need.disk_bytes())) : "";
    fail(ExitCode::cannot_fit,
         fmt::format("this run needs {} of host memory{} and the budget is {}; the largest shares are {}. "
                     "Raise memory.host to {}{}, or train a smaller model or fewer tokens per step",
                     format_bytes(need.host_bytes()), beside, format_bytes(b.host_bytes), largest_shares(need.host),
                     format_bytes_up(need.host_bytes()), disk_remedy(b, least_disk)));
  }
  if (need.disk_bytes() > 0 && b.disk_bytes == 0) {
    fail(ExitCode::cannot_fit,
         fmt::format(
             "the plan keeps {} on disk and this run uses no disk; set memory.nvme_path to a directory on an NVMe "
             "drive with that much free, or make a new plan with 'megatrain plan'",
             format_bytes_up(need.disk_bytes())));
  }
  if (need.disk_bytes() > b.disk_bytes) {
    fail(ExitCode::cannot_fit,
         fmt::format("the plan keeps {} on disk and the budget is {}; raise memory.nvme to {}, or make a new plan with "
                     "'megatrain plan'",
                     format_bytes(need.disk_bytes()), format_bytes(b.disk_bytes), format_bytes_up(need.disk_bytes())));
  }
}

namespace {

void refuse(const std::string& what) {
  fail_config("the plan does not fit this run: " + what + "; make a new one with 'megatrain plan'");
}

// Messages are built only for checks that fail, because hundreds of plans are checked.
class PlanCheck {
 public:
  PlanCheck(const Workload& w, const Plan& p) : w_(w), p_(p) {}

  void all() const {
    sizes();
    for (int64_t r = 0; r < w_.record_count(); ++r) record(r);
    for (int64_t p = 0; p < w_.phase_count(); ++p) phase(p);
    rings();
    sweeps();
  }

 private:
  void require(bool holds, int64_t record, const char* what) const {
    if (!holds) refuse(describe_record(w_, record) + what);
  }

  void sizes() const {
    check_sizes(w_, {p_.experts_per_record, std::ssize(p_.phases), std::ssize(p_.records)});
    ring("input_every", p_.input_every, 1, std::max<int64_t>(1, w_.layer_phases()));
  }

  void record(int64_t r) const {
    const RecordPlan& plan = p_.record(r);
    const bool layer = w_.is_layer_record(r), trained = w_.is_trained(r), by_host = !p_.updated_on_device(r);
    require(plan.weights == Tier::hbm || plan.weights == Tier::host, r, "'s weights must be \"hbm\" or \"host\"");
    require(
        plan.state != Tier::files || w_.may_stay_in_files(r), r,
        "'s weights may stay in the model's files only when it is a frozen block beside adapters, files hold it and "
        "memory.base is not host");
    require(plan.moments != Tier::files && plan.gradient != Tier::files, r,
            "'s moments and gradient are not in the model's files");
    require(plan.state != Tier::hbm || (plan.weights == Tier::hbm && plan.updated_by == UpdatedBy::device), r,
            "'s state is on the device, so its weights must be, and the device updates it");
    require((plan.state == Tier::hbm) == (plan.moments == Tier::hbm), r,
            "'s moments live on the device exactly when its state does");
    require(layer || (plan.weights == Tier::hbm) == (plan.state == Tier::hbm), r,
            "'s weights stay on the device only when its state lives there");
    require(!p_.visiting(r) || (layer && w_.clip && trained), r,
            "'s state may be copied to the device for its update only when it is a trained block and gradients are "
            "clipped");
    require(!p_.visiting(r) || plan.moments == Tier::host, r,
            "'s state is copied to the device for its update, so its moments must be on the host");
    require(plan.state != Tier::disk || (layer && by_host && (plan.moments == Tier::disk) == trained), r,
            "'s weights may live on disk only when it is a block that the host updates and has its moments there");
    const bool rows = w_.is_looked_up(r);
    require(plan.moments != Tier::disk || (!rows && trained && by_host), r,
            rows ? ", the embedding, has its moments on disk, and its rows are updated when they are needed"
                 : "'s moments may live on disk only when it is trained and the host updates it");
    if (plan.gradient != Tier::host) gradient(r);
    if (w_.alias_records > 0 && layer)
      require(p_.streams(r) && plan.state == Tier::host && plan.moments == Tier::host && plan.gradient != Tier::disk, r,
              " aliases memory, so it must live on the host and stream");
  }

  void gradient(int64_t r) const {
    require(w_.clip && w_.is_layer_record(r) && w_.is_trained(r) && !p_.updated_on_device(r), r,
            "'s gradient may wait outside host memory only when gradients are clipped, it is a trained block "
            "and the host updates it");
    require(p_.gradient_on_disk(r) || leaves_its_place(w_, p_, r), r,
            "'s gradient may wait on the device only in the memory of its block's input");
  }

  void phase(int64_t p) const {
    const PhasePlan& plan = p_.phase(p);
    const PhaseWork& work = w_.phase(p);
    const bool layer = work.has_input() && !work.ends;
    if (!layer && plan != PhasePlan{})
      refuse(fmt::format("{} must keep nothing, and its input must stay on the device",
                         work.ends ? "the head" : "the embedding"));
    if (plan.outputs == Tier::files || plan.input == Tier::files)
      refuse(fmt::format("the activations of block {} are in the model's files, which are only read", p));
    if (keep_index(plan.keep) >= work.levels.size())
      refuse(
          fmt::format("block {} keeps level {}, expected 0 to {}", p, keep_index(plan.keep), work.levels.size() - 1));
    if (plan.outputs != Tier::hbm && !work.level(plan.keep).may_wait)
      refuse(fmt::format("'outputs' is \"{}\" for block {}, which keeps {}: {} may be kept off the device",
                         tier_name(plan.outputs), p, work.level(plan.keep).name, that_may_wait(work)));
  }
  static std::string that_may_wait(const PhaseWork& work) {
    std::string names;
    for (const KeepWork& level : work.levels) {
      if (level.may_wait) names += (names.empty() ? "only " : ", ") + level.name;
    }
    return names.empty() ? "nothing in it" : names;
  }

  // Throws unless the ring is within its limits; `why` explains limits that the numbers do not.
  void ring(const char* name, int64_t value, int64_t least, int64_t most, const char* why = "") const {
    if (value >= least && value <= most) return;
    refuse(fmt::format("{} is {}, expected {}{}", name, value,
                       least == most ? std::to_string(least) : fmt::format("{} to {}", least, most), why));
  }
  // A ring for `things` items. At least `least` of them (or all, if there are fewer) must fit at once.
  void ring_of(const char* name, int64_t value, int64_t things, int64_t least) const {
    ring(name, value, std::min(least, things), things);
  }

  void rings() const {
    const Rings& rings = p_.rings;
    const int64_t phases = w_.layer_phases();
    const SlotRings slot_rings(w_);
    for (const SlotRing& slots : slot_rings.all()) ring(slots.name, rings.*slots.slots, slots.at_once, slots.records);
    ring_of("packed_slots", rings.packed_slots, p_.packed_and_coming(w_), 1);
    ring("input_slots", rings.input_slots, 2, phases + 3);
    const bool away = p_.outputs_wait_elsewhere();
    ring("output_slots", rings.output_slots, away ? 2 : 0, away ? phases + 3 : 0,
         away ? "" : ": all kept outputs stay on the device");
    ring("gradients_out", rings.gradients_out, 1, w_.layer_record_count() + 2);
    ring("visit_slots", rings.visit_slots, 0, w_.gradients_stay ? 0 : p_.visitors(),
         w_.gradients_stay ? ": gradients are dumped" : "");
    ring_of("moment_slabs", rings.moment_slabs, p_.with_moments_on_disk(), 2);
    ring_of("weight_slabs", rings.weight_slabs, p_.with_weights_staged(), 1);
    ring_of("gradient_slabs", rings.gradient_slabs, p_.waiting_elsewhere(), 2);
    const bool stored = p_.activations_on_disk();
    ring("activation_slabs", rings.activation_slabs, stored ? 1 : 0, stored ? w_.micro_batches + 2 : 0,
         stored ? " for block inputs and kept outputs that wait on disk"
                : ": no block input and no kept output waits on disk");
    const int64_t waiting = p_.waiting_on_host(w_);
    ring("host_gradients", rings.host_gradients, w_.clip ? waiting : std::min<int64_t>(1, waiting), waiting,
         w_.clip ? " (clipping keeps every gradient until the norm is known)" : "");
  }

  void sweeps() const {
    int64_t total = 0;
    for (const int64_t width : p_.sweeps) {
      if (width < 1) refuse("a sweep has no micro-batch");
      total += width;
    }
    if (total != w_.micro_batches)
      refuse(fmt::format("its sweeps have {} micro-batches in total, the step has {}", total, w_.micro_batches));
    if (w_.aux_loss != 0 && p_.sweeps.size() != 1)
      refuse(fmt::format(
          "it has {} sweeps; moe.aux_loss needs one, to know the router's choices of the whole step before backward",
          p_.sweeps.size()));
  }

  const Workload& w_;
  const Plan& p_;
};

}  // namespace

void check_sizes(const Workload& w, const PlanSizes& sizes) {
  if (sizes.experts_per_record != w.experts_per_record)
    refuse(fmt::format("its records hold {} experts, the run's {}", sizes.experts_per_record, w.experts_per_record));
  if (sizes.phases != w.phase_count())
    refuse(fmt::format("it is for a model with {} blocks, this one has {}", std::max<int64_t>(0, sizes.phases - 2),
                       w.layer_phases()));
  if (sizes.records != w.record_count())
    refuse(fmt::format("it has {} records, the model has {}", sizes.records, w.record_count()));
}

void check_plan(const Workload& w, const Plan& plan) { PlanCheck(w, plan).all(); }

}  // namespace megatrain
