#include "megatrain/plan/outlook.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/base/units.h"
#include "megatrain/plan/estimate.h"

namespace megatrain {

namespace {

double as_double(int64_t value) { return static_cast<double>(value); }

// A save goes through the page cache and ends when the drive has everything: 18.5 GB took 14.3 to 19.4 s on an H200's
// host, whose drive wrote 1.5 GB/s past the page cache. Before that every byte is gathered, hashed and copied.
constexpr double kSaveShare = 0.75, kSavePasses = 4;

// Of one token through all layers; backward has what it computes again, and the head.
struct TokenSeconds {
  double forward = 0;
  double backward = 0;

  // That an update may hide behind: with clipping updates follow the norm; without, gradients come during backward, and
  // what comes last is needed first.
  double hides_update(const Workload& w) const { return w.clip ? forward : backward; }
};

// `keep` by layer phase.
template <class KeepOf>
TokenSeconds token_seconds(const Workload& w, const MachineProfile& m, const KeepOf& keep_of) {
  double forward = 0, backward = w.phases.back().forward_flops + w.phases.back().backward_flops;
  for (int64_t p = 1; p < w.head_phase(); ++p) {
    const PhaseWork& phase = w.phase(p);
    forward += phase.forward_flops;
    if (p < w.first_trained_phase()) continue;
    backward += phase.backward_flops + phase.recomputed_flops[static_cast<size_t>(keep_of(p))];
  }
  return {.forward = forward / m.flops_per_s, .backward = backward / m.flops_per_s};
}

int64_t tokens_that_take(double seconds, double token_s) {
  return seconds > 0 ? static_cast<int64_t>(std::ceil(seconds / token_s)) : 0;
}

// Bytes of layers' weights that cross to the device in the forward passes of a step.
int64_t forward_weight_bytes(const Workload& w, const Plan& plan) {
  int64_t bytes = 0;
  for (int64_t r = 1; r < w.head_record(); ++r) {
    if (plan.streams(r)) bytes += std::ssize(plan.sweeps) * w.weight_bytes(r);
    if (plan.copied(r)) bytes += w.weight_bytes(r);
  }
  return bytes;
}

// Bytes of gradients that leave the device in a step. Those of rows grow with its tokens and are left out.
int64_t leaving_gradient_bytes(const Workload& w, const Plan& plan) {
  int64_t bytes = 0;
  for (int64_t r = 0; r < w.record_count(); ++r) {
    if (plan.gradient_leaves(r) && !w.by_rows(r)) bytes += w.gradient_bytes(r);
  }
  return bytes;
}

// Of one token through the phases whose outputs are computed again, as they do not wait.
double again_seconds(const Workload& w, const Plan& plan, const MachineProfile& m) {
  double flops = 0;
  for (int64_t p = std::max<int64_t>(1, w.first_trained_phase()); p + 1 < w.head_phase(); ++p) {
    if (plan.above_boundary(p + 1, w.first_trained_phase()) != 0) flops += w.phase(p).forward_flops;
  }
  return flops / m.flops_per_s;
}

// "12,340", of a whole number.
std::string thousands(double value) {
  std::string text = fmt::format("{:.0f}", value);
  for (int64_t at = std::ssize(text) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

std::string from_tokens(int64_t tokens) {
  return tokens > 0 ? fmt::format("from {} tokens a step on", thousands(as_double(tokens))) : "at any size of a step";
}

}  // namespace

Outlook outlook(const Workload& w, const Plan& plan, const MachineProfile& m) {
  Outlook o{.estimate = estimate(w, plan, m)};
  const Estimate& e = o.estimate;
  o.attention_s = attention_flops(w, plan) / (m.attention_flops_per_s > 0 ? m.attention_flops_per_s : m.flops_per_s);
  o.tokens_per_s = as_double(w.tokens()) / e.step_s;
  TokenSeconds token = token_seconds(w, m, [&](int64_t p) { return plan.phase(p).keep; });
  o.optimizer_tokens = tokens_that_take(std::max({e.update_s, e.disk_read_s, e.disk_write_s}), token.hides_update(w));
  token.backward += again_seconds(w, plan, m);
  o.weights_tokens = tokens_that_take(as_double(forward_weight_bytes(w, plan)) / m.h2d_bytes_per_s, token.forward);
  o.gradients_tokens = tokens_that_take(as_double(leaving_gradient_bytes(w, plan)) / m.d2h_bytes_per_s, token.backward);
  for (int64_t r = 0; r < w.record_count(); ++r) o.checkpoint_bytes += w.checkpoint_bytes(r);
  o.checkpoint_s = as_double(o.checkpoint_bytes) / (kSaveShare * m.disk_write_bytes_per_s) +
                   kSavePasses * as_double(o.checkpoint_bytes) / m.dram_bytes_per_s;
  return o;
}

int64_t tokens_to_hide_host_update(const Workload& w, const MachineProfile& m) {
  double bytes = 0, parameters = 0;
  for (int64_t r = 0; r < w.record_count(); ++r) {
    if (!w.is_trained(r) || w.by_rows(r)) continue;
    parameters += as_double(w.record(r).trained);
    bytes += as_double(w.gradient_bytes(r) + 2 * w.visiting_bytes(r));
  }
  const TokenSeconds token = token_seconds(w, m, [](int64_t) { return Keep::nothing; });
  return tokens_that_take(m.update_seconds(parameters, bytes, w.state.moments), token.hides_update(w));
}

bool size_matters(const Workload& w, const Outlook& o) {
  const bool hides = o.link_tokens() > 0 || o.optimizer_tokens > 0;
  return hides && (o.estimate.bound_by != "compute" || w.active_parameters < w.parameters);
}

double cost_per_billion_tokens(const Outlook& o, double price) { return price / 3600 * 1e9 / o.tokens_per_s; }

std::string outlook_text(const Workload& w, const Outlook& o, const MachineProfile& m, std::optional<double> price) {
  std::string text = fmt::format("estimated: {} tokens/s on {}\n", thousands(o.tokens_per_s), m.title());
  text += fmt::format("of the compute attention takes {}, the rest {}\n", format_seconds(o.attention_s),
                      format_seconds(o.estimate.compute_s - o.attention_s));
  text += fmt::format("the link hides behind compute {}, the optimizer {}; this step has {}\n",
                      from_tokens(o.link_tokens()), from_tokens(o.optimizer_tokens), thousands(as_double(w.tokens())));
  if (size_matters(w, o))
    text += fmt::format(
        "  weights come within forward {}, gradients leave within backward {}, the update hides behind {}\n",
        from_tokens(o.weights_tokens), from_tokens(o.gradients_tokens),
        w.clip ? "the next forward alone: it waits for the norm" : "backward");
  text +=
      fmt::format("a checkpoint has {} and takes {} on a drive that writes {:.2g} GB/s\n",
                  format_bytes(o.checkpoint_bytes), format_duration(o.checkpoint_s), m.disk_write_bytes_per_s * 1e-9);
  if (price)
    text += fmt::format("a billion tokens cost {:.2f} at {:g} an hour\n", cost_per_billion_tokens(o, *price), *price);
  return text;
}

}  // namespace megatrain
