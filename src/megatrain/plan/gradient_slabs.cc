#include "megatrain/plan/gradient_slabs.h"

#include <algorithm>

namespace megatrain {

namespace {

bool leaves(const Workload& w, const Plan& plan, int64_t block) {
  return w.is_trained(block) && !plan.updated_on_device(block);
}

class Slabs {
 public:
  explicit Slabs(const Workload& w) : w_(w) {
    slabs_.of_block.assign(static_cast<size_t>(w.blocks), -1);
    slabs_.begin = {0};
  }
  int64_t add(int64_t elements) {
    slabs_.begin.push_back(slabs_.begin.back() + elements);
    return static_cast<int64_t>(slabs_.begin.size()) - 2;
  }
  void own(int64_t block) { put(block, add(w_.trained_elements(block))); }
  void put(int64_t block, int64_t slab) { slabs_.of_block[static_cast<size_t>(block - 1)] = slab; }
  GradientSlabs take() { return std::move(slabs_); }

 private:
  const Workload& w_;
  GradientSlabs slabs_;
};

}  // namespace

GradientElements gradient_elements(const Workload& w, const Plan& plan) {
  GradientElements of;
  int64_t own = 0, leaving = 0;
  for (int64_t block = 1; block <= w.blocks; ++block) {
    const int64_t elements = w.trained_elements(block);
    if (plan.updated_on_device(block)) {
      own += elements;
    } else {
      leaving += elements;
      of.largest_leaving = std::max(of.largest_leaving, elements);
    }
  }
  of.sums = own + (plan.sweeps.size() > 1 ? leaving : of.largest_leaving);
  of.waiting = w.clip ? leaving : plan.host_gradient_slabs * of.largest_leaving;
  return of;
}

GradientSlabs gradient_sums(const Workload& w, const Plan& plan) {
  Slabs slabs(w);
  const bool sweeps = plan.sweeps.size() > 1;  // half-summed gradients never leave the device
  const int64_t shared = gradient_elements(w, plan).largest_leaving;
  if (!sweeps && shared > 0) slabs.add(shared);
  for (int64_t block = 1; block <= w.blocks; ++block) {
    if (!w.is_trained(block)) continue;
    if (sweeps || plan.updated_on_device(block)) {
      slabs.own(block);
    } else {
      slabs.put(block, 0);
    }
  }
  return slabs.take();
}

GradientSlabs waiting_gradients(const Workload& w, const Plan& plan) {
  Slabs slabs(w);
  if (w.clip) {
    for (int64_t block = 1; block <= w.blocks; ++block) {
      if (leaves(w, plan, block)) slabs.own(block);
    }
  } else {
    const int64_t largest = gradient_elements(w, plan).largest_leaving;
    for (int64_t i = 0; i < plan.host_gradient_slabs; ++i) slabs.add(largest);
  }
  return slabs.take();
}

}  // namespace megatrain
