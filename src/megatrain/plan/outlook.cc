#include "megatrain/plan/outlook.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/base/units.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/slot_rings.h"

namespace megatrain {

namespace {

double to_double(int64_t value) { return static_cast<double>(value); }

// Every byte of a checkpoint is gathered, hashed and copied. It is then written through the page cache, and the save
// ends when the drive has everything. 18.5 GB took 14.3 to 19.4 s on an H200's host, whose drive wrote 1.5 GB/s when
// the page cache was bypassed.
constexpr double kSaveShare = 0.75, kSavePasses = 4;

// The tokens per step at which forward or backward takes as long as the work it must hide. With clipping, updates
// follow the norm and hide behind the next forward. Without, gradients arrive during backward, and the record whose
// gradient arrives last is needed first.
class Hiding {
 public:
  Hiding(const Workload& w, const StepParts& parts)
      : forward_s_(parts.forward_s / to_double(w.tokens())),
        backward_s_(parts.backward_s / to_double(w.tokens())),
        clip_(w.clip) {}

  int64_t behind_forward(double seconds) const { return tokens(seconds, forward_s_); }
  int64_t behind_backward(double seconds) const { return tokens(seconds, backward_s_); }
  int64_t update(double seconds) const { return clip_ ? behind_forward(seconds) : behind_backward(seconds); }

 private:
  static int64_t tokens(double seconds, double token_s) {
    constexpr double kRounding = 1e-9;  // a different summation order must not add a token
    return seconds > 0 ? static_cast<int64_t>(std::ceil(seconds / token_s * (1 - kRounding))) : 0;
  }

  double forward_s_, backward_s_;  // per token
  bool clip_;
};

// A plan with all state in host memory and no activations kept.
Plan plan_on_host(const Workload& w) {
  Plan plan{.experts_per_record = w.experts_per_record,
            .records = std::vector<RecordPlan>(w.records.size()),
            .phases = std::vector<PhasePlan>(w.phases.size()),
            .rings = {.host_gradients = w.record_count()},
            .sweeps = {w.micro_batches}};
  SlotRings(w).set(1, plan.rings);
  plan.rings.packed_slots = std::min<int64_t>(2, plan.packed_and_coming(w));
  return plan;
}

std::string from_tokens(int64_t tokens) {
  return tokens > 0 ? fmt::format("from {} tokens per step", thousands(to_double(tokens))) : "at any step size";
}

}  // namespace

std::string thousands(double value) {
  std::string text = fmt::format("{:.0f}", value);
  for (int64_t at = std::ssize(text) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

Outlook outlook(const Workload& w, const Plan& plan, const MachineProfile& m) {
  Outlook o{.estimate = estimate(w, plan, m)};
  const Estimate& e = o.estimate;
  o.attention_s = attention_flops(w, plan) / (m.attention_flops_per_s > 0 ? m.attention_flops_per_s : m.flops_per_s);
  o.tokens_per_s = to_double(w.tokens()) / e.step_s;
  const StepParts parts = step_parts(w, plan, m);
  const Hiding hiding(w, parts);
  o.optimizer_tokens = hiding.update(std::max({e.update_s, parts.collected_s, e.disk_read_s, e.disk_write_s}));
  o.weights_tokens = hiding.behind_forward(parts.weights_s);
  o.gradients_tokens = hiding.behind_backward(parts.gradients_s);
  for (int64_t r = 0; r < w.record_count(); ++r) o.checkpoint_bytes += w.checkpoint_bytes(r);
  o.checkpoint_s = to_double(o.checkpoint_bytes) / (kSaveShare * m.disk_write_bytes_per_s) +
                   kSavePasses * to_double(o.checkpoint_bytes) / m.dram_bytes_per_s;
  return o;
}

int64_t tokens_to_hide_host_update(const Workload& w, const MachineProfile& m) {
  const StepParts parts = step_parts(w, plan_on_host(w), m);
  return Hiding(w, parts).update(parts.update_s);
}

int64_t tokens_to_hide_host_weights(const Workload& w, const MachineProfile& m) {
  const StepParts parts = step_parts(w, plan_on_host(w), m);
  return Hiding(w, parts).behind_forward(parts.weights_s);
}

bool size_matters(const Workload& w, const Outlook& o) {
  const bool hides = o.link_tokens() > 0 || o.optimizer_tokens > 0;
  return hides && (o.estimate.bound_by != "compute" || w.active_parameters < w.parameters);
}

double cost_per_billion_tokens(const Outlook& o, double price) { return price / 3600 * 1e9 / o.tokens_per_s; }

std::string outlook_text(const Workload& w, const Outlook& o, const MachineProfile& m, std::optional<double> price) {
  std::string text = fmt::format("estimated: {} tokens/s on {}\n", thousands(o.tokens_per_s), m.title());
  text += fmt::format("compute: attention {}, the rest {}\n", format_seconds(o.attention_s),
                      format_seconds(o.estimate.compute_s - o.attention_s));
  text += fmt::format("the link hides behind compute {}, the optimizer {}; this step has {}\n",
                      from_tokens(o.link_tokens()), from_tokens(o.optimizer_tokens), thousands(to_double(w.tokens())));
  if (size_matters(w, o))
    text += fmt::format(
        "  weights arrive within forward {}, gradients leave within backward {}, the update hides behind {}\n",
        from_tokens(o.weights_tokens), from_tokens(o.gradients_tokens),
        w.clip ? "only the next forward, since it waits for the norm" : "backward");
  text +=
      fmt::format("a checkpoint is {} and takes {} on a drive that writes {:.2g} GB/s\n",
                  format_bytes(o.checkpoint_bytes), format_duration(o.checkpoint_s), m.disk_write_bytes_per_s * 1e-9);
  if (price)
    text += fmt::format("a billion tokens cost {:.2f} at {:g} an hour\n", cost_per_billion_tokens(o, *price), *price);
  return text;
}

}  // namespace megatrain
