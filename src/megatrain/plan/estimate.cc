// The cost model: three steps, layer by layer, on four lanes that only wait where the engine's do.
#include <algorithm>
#include <deque>
#include <set>

#include "megatrain/plan/schedule.h"

namespace megatrain {

int64_t fetched_weight_bytes(const Workload& w, const Plan& plan) {
  int64_t bytes = 0;
  for (const Action& action : grouped_actions(w, plan, 1)) {
    if (action.kind == ActionKind::fetch_weights) bytes += w.weight_bytes(action.record);
  }
  return bytes;
}

namespace {

constexpr double kFinishBytes = 6;   // moved for an element of a gradient that is rounded and normed
constexpr double kUpdateBytes = 28;  // moved for an element that the device updates

// Of one token through one phase.
double forward_seconds(const PhaseWork& phase, const MachineProfile& m) { return phase.forward_flops / m.flops_per_s; }
double backward_seconds(const PhaseWork& phase, const MachineProfile& m, Keep keep) {
  const size_t at = static_cast<size_t>(keep);
  return (phase.backward_flops + phase.recomputed_flops[at]) / m.flops_per_s +
         phase.recomputed_bytes[at] / m.hbm_bytes_per_s;
}
double head_seconds(const Workload& w, const MachineProfile& m) {
  return (w.phases.back().forward_flops + w.phases.back().backward_flops) / m.flops_per_s;
}

class Lanes {
 public:
  Lanes(const Workload& w, const Plan& plan, const MachineProfile& m) : w_(w), plan_(plan), m_(m) {
    ready_.assign(static_cast<size_t>(w.record_count()), 0);
    first_backward_ = std::max<int64_t>(1, w.first_trained_phase());
  }

  // Busy seconds of the step and its length.
  Estimate step() {
    const double before = compute_;
    busy_ = {};
    warm_.clear();
    copied_.clear();
    sweeps_done_ = 0;
    if (!plan_.state_on_device(0)) fetch(0, rows_bytes());
    for (size_t sweep = 0; sweep < plan_.sweeps.size(); ++sweep) {
      width_ = static_cast<double>(plan_.sweeps[sweep] * w_.micro_tokens);
      last_ = sweep + 1 == plan_.sweeps.size();
      for (int64_t block = 1; block < w_.head_phase(); ++block) forward(block);
      head();
      for (int64_t block = w_.head_phase() - 1; block >= first_backward_; --block) backward(block);
      ++sweeps_done_;
    }
    finish(0);
    if (w_.clip) updates();
    busy_.step_s = plan_.serial ? busy_.compute_s + busy_.h2d_s + busy_.d2h_s + busy_.update_s : compute_ - before;
    return busy_;
  }

 private:
  double element() const { return static_cast<double>(dtype_bytes(w_.dtype)); }
  double elements(int64_t record) const { return static_cast<double>(w_.record(record).elements); }
  double trained(int64_t record) const { return static_cast<double>(w_.record(record).trained); }
  double rows_bytes() const { return static_cast<double>(w_.touched_rows() * w_.hidden) * element(); }
  double boundary_bytes() const {
    return width_ / static_cast<double>(w_.micro_tokens) * static_cast<double>(w_.activation_bytes(1));
  }

  void compute(double seconds, double from = 0) {
    compute_ = std::max(compute_, from) + seconds;
    busy_.compute_s += seconds;
  }
  // Returns when the bytes are there.
  double to_device(double bytes, double from) {
    const double seconds = bytes / m_.h2d_bytes_per_s;
    busy_.h2d_s += seconds;
    return h2d_ = std::max(h2d_, from) + seconds;
  }
  double to_host(double bytes) {
    const double seconds = bytes / m_.d2h_bytes_per_s;
    busy_.d2h_s += seconds;
    return d2h_ = std::max(d2h_, compute_) + seconds;
  }
  double fetch(int64_t record, double bytes, double from = 0) {
    return to_device(bytes, std::max(from, ready_[static_cast<size_t>(record)]));
  }

  // When block's weights are on the device.
  double hold(int64_t block) {
    if (plan_.state_on_device(block)) return 0;
    const double bytes = elements(block) * element();
    if (plan_.weights[static_cast<size_t>(block - 1)] == Tier::hbm)
      return copied_.insert(block).second ? fetch(block, bytes) : 0;
    for (const auto& [warm, used] : warm_) {
      if (warm == block) return 0;
    }
    double free = 0;
    if (static_cast<int64_t>(warm_.size()) == plan_.slots) {
      free = warm_.front().second;
      warm_.pop_front();
    }
    const double there = fetch(block, bytes, free);
    warm_.emplace_back(block, there);
    return there;
  }
  void used(int64_t block) {
    for (auto entry = warm_.begin(); entry != warm_.end(); ++entry) {
      if (entry->first != block) continue;
      warm_.erase(entry);
      warm_.emplace_back(block, compute_);
      return;
    }
  }

  void forward(int64_t block) {
    compute(width_ * forward_seconds(w_.phase(block), m_), hold(block));
    used(block);
    if (block >= first_backward_ && plan_.boundary[static_cast<size_t>(block - 1)] == Tier::host)
      to_host(boundary_bytes());
  }

  void head() {
    double there = 0;
    if (sweeps_done_ == 0) {
      if (!plan_.state_on_device(w_.head_record()))
        there = fetch(w_.head_record(), elements(w_.head_record()) * element());
      if (w_.tied && !plan_.state_on_device(0)) there = fetch(0, elements(0) * element());
    }
    compute(width_ * head_seconds(w_, m_), there);
    if (last_) finish(w_.head_record());
  }

  void backward(int64_t block) {
    const size_t at = static_cast<size_t>(block - 1);
    double there = hold(block);
    if (plan_.boundary[at] == Tier::host) there = to_device(boundary_bytes(), 0);
    compute(width_ * backward_seconds(w_.phase(block), m_, plan_.keep[at]), there);
    used(block);
    if (last_) finish(block);
  }

  // A summed gradient is rounded and normed; without clipping it is used at once.
  void finish(int64_t record) {
    if (!w_.is_trained(record)) return;
    const double size = record == 0 && !w_.tied ? rows_bytes() / element() : trained(record);
    compute(size * kFinishBytes / m_.hbm_bytes_per_s);
    if (plan_.updated_on_device(record)) {
      if (!w_.clip) update_on_device(record);
      return;
    }
    to_host(size * element());
    if (!w_.clip) update_on_host(record, d2h_);
  }

  void update_on_device(int64_t record) { compute(trained(record) * kUpdateBytes / m_.hbm_bytes_per_s); }
  void update_on_host(int64_t record, double from) {
    // rows of the embedding without a gradient are made up a slice at a time
    constexpr double kSlices = 16;
    const double size =
        record == 0 && !w_.tied ? rows_bytes() / element() + trained(record) / kSlices : trained(record);
    const double seconds = size * (w_.dtype == DType::bf16 ? 26 : 28) / m_.dram_bytes_per_s;
    busy_.update_s += seconds;
    ready_[static_cast<size_t>(record)] = update_ = std::max(update_, from) + seconds;
  }

  void updates() {
    for (int64_t record = 0; record < w_.record_count(); ++record) {
      if (plan_.visiting(record)) to_device(static_cast<double>(w_.visiting_bytes(record)), 0);
    }
    const double known = std::max(compute_, d2h_);
    for (int64_t record = 0; record < w_.record_count(); ++record) {
      if (!w_.is_trained(record)) continue;
      if (!plan_.updated_on_device(record)) {
        update_on_host(record, known);
        continue;
      }
      update_on_device(record);
      if (plan_.visiting(record))
        ready_[static_cast<size_t>(record)] = to_host(static_cast<double>(w_.visiting_bytes(record)));
    }
  }

  const Workload& w_;
  const Plan& plan_;
  const MachineProfile& m_;
  double compute_ = 0, h2d_ = 0, d2h_ = 0, update_ = 0;  // when each lane is free
  std::vector<double> ready_;                            // (records) when the host has the step's weights
  std::deque<std::pair<int64_t, double>> warm_;          // blocks in slots, least recently used first, and until when
  std::set<int64_t> copied_;                             // blocks with a place of their own that were fetched
  int64_t first_backward_ = 1;                           // the lowest block that has one
  double width_ = 0;                                     // tokens of the sweep
  bool last_ = false;
  size_t sweeps_done_ = 0;
  Estimate busy_;
};

}  // namespace

double compute_seconds(const Workload& w, const Plan& plan, const MachineProfile& m) {
  double a_token = head_seconds(w, m), elements = 0;
  for (int64_t phase = 1; phase < w.head_phase(); ++phase) {
    a_token += forward_seconds(w.phase(phase), m);
    if (phase >= w.first_trained_phase()) a_token += backward_seconds(w.phase(phase), m, plan.keep_of(phase));
  }
  for (int64_t record = 0; record < w.record_count(); ++record) {
    if (plan.updated_on_device(record)) elements += static_cast<double>(w.record(record).trained);
  }
  return static_cast<double>(w.tokens()) * a_token + elements * kUpdateBytes / m.hbm_bytes_per_s;
}

std::string bounding_lane(double step_s, double compute_s, const std::map<std::string, double>& others) {
  const auto busiest =
      std::max_element(others.begin(), others.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const double stalled = step_s - compute_s;
  return stalled < 0.05 * step_s || busiest->second < stalled / 2 ? "compute" : busiest->first;
}

Estimate estimate(const Workload& w, const Plan& plan, const MachineProfile& m) {
  Lanes lanes(w, plan, m);
  lanes.step();
  lanes.step();
  Estimate e = lanes.step();
  e.bound_by = bounding_lane(e.step_s, e.compute_s, {{"h2d", e.h2d_s}, {"d2h", e.d2h_s}, {"update", e.update_s}});
  return e;
}

}  // namespace megatrain
