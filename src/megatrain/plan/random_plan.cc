#include "megatrain/plan/random_plan.h"

#include <algorithm>

#include "megatrain/base/rng.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/slot_rings.h"

namespace megatrain {

namespace {

class RandomPlan {
 public:
  RandomPlan(const Workload& w, uint64_t seed) : w_(w), seed_(seed) {}

  Plan make() {
    plan_.experts_per_record = w_.experts_per_record;
    plan_.records.resize(w_.records.size());
    plan_.phases.resize(w_.phases.size());
    slots();
    places();
    sweeps();
    const bool disk = below(2) == 0;  // half keep all moments in memory: the harder case for the other lanes
    moments(disk);
    gradients();
    weights(disk && below(2) == 0);
    inputs(disk);
    outputs(disk);
    return std::move(plan_);
  }

 private:
  int64_t below(int64_t bound) {
    constexpr uint64_t kPurpose = 0x706c616e;  // "plan"
    return static_cast<int64_t>(random_below(seed_, kPurpose, index_++, static_cast<uint64_t>(bound)));
  }
  // 0 if there are no things, otherwise a few.
  int64_t ring(int64_t things, int64_t least) {
    return things < least ? things : least + below(std::min<int64_t>(things - least + 1, 3));
  }

  void slots() {
    const SlotRings slot_rings(w_);
    for (const SlotRing& ring : slot_rings.all()) {
      const int64_t most = ring.records - ring.at_once + 1;
      // usually few: streaming is the hard case
      plan_.rings.*ring.slots =
          ring.records == 0 ? 0 : ring.at_once + below(below(3) ? std::min<int64_t>(3, most) : most);
    }
    plan_.input_every = below(3) ? 1 : 1 + below(std::min<int64_t>(4, w_.layer_phases()));
    plan_.rings.input_slots = 2 + below(3);
    plan_.rings.gradients_out = 1 + below(3);
    plan_.serial = below(12) == 0;
  }

  void places() {
    const int64_t resident = std::max<int64_t>(0, below(4) - 1);  // none, some, or most
    const int64_t kept = below(4);
    const int64_t on_device = below(8) - 5;  // most plans keep all state on the host: streaming is the hard case
    for (RecordPlan& record : plan_.records) {
      if (below(6) < 2 * on_device) record.live_on_device();
    }
    for (const int64_t r : w_.layer_records()) {
      if (plan_.state_on_device(r)) continue;
      if (below(4) < resident) plan_.record(r).weights = Tier::hbm;
      if (w_.clip && below(5) == 0 && w_.is_trained(r)) plan_.record(r).updated_by = UpdatedBy::device;
    }
    for (int64_t p = 1; p < w_.head_phase(); ++p) {
      plan_.phase(p).keep = Keep{static_cast<int32_t>(below(2) ? 0 : below(std::ssize(w_.phase(p).levels)))};
      plan_.phase(p).input = below(3) < kept ? Tier::hbm : Tier::host;
    }
    plan_.rings.packed_slots = ring(plan_.packed_and_coming(w_), 1);
    const int64_t visitors = plan_.visitors();
    if (visitors > 0 && !w_.gradients_stay && below(2)) plan_.rings.visit_slots = ring(visitors, 1);
  }

  void sweeps() {
    for (int64_t left = w_.micro_batches; left > 0;) {
      const int64_t width = w_.aux_loss > 0 || below(2) ? left : 1 + below(left);
      plan_.sweeps.push_back(width);
      left -= width;
    }
  }

  void moments(bool disk) {
    for (int64_t r = 0; r < w_.record_count(); ++r) {
      const bool may = w_.is_trained(r) && !w_.is_looked_up(r) && !plan_.updated_on_device(r);
      if (disk && may && below(3) > 0) plan_.record(r).moments = Tier::disk;
    }
    plan_.rings.moment_slabs = ring(plan_.with_moments_on_disk(), 2);
  }

  void gradients() {
    const int64_t elsewhere = w_.clip ? below(4) : 0;  // 1: some on disk, 2: some on the device, 3: some on both
    for (const int64_t r : w_.layer_records()) {
      if (elsewhere == 0) break;
      if (!w_.is_trained(r) || plan_.updated_on_device(r)) continue;
      const Tier tier = elsewhere == 1 || (elsewhere == 3 && below(2)) ? Tier::disk : Tier::hbm;
      if (below(4) > 0 && (tier == Tier::disk || leaves_its_place(w_, plan_, r))) plan_.record(r).gradient = tier;
    }
    plan_.rings.gradient_slabs = ring(plan_.waiting_elsewhere(), 2);
    const int64_t waiting = plan_.waiting_on_host(w_);
    plan_.rings.host_gradients = w_.clip || waiting == 0 ? waiting : 1 + below(waiting);
  }

  void weights(bool disk) {
    for (const int64_t r : w_.layer_records()) {
      const bool may = disk && !plan_.updated_on_device(r) && plan_.moments_on_disk(r) == w_.is_trained(r);
      if (may && below(3) > 0) plan_.record(r).state = Tier::disk;
    }
    if (std::ranges::any_of(w_.records, [](const RecordWork& r) { return r.file_bytes > 0; })) files();
    plan_.rings.weight_slabs = ring(plan_.with_weights_staged(), 1);
  }

  // In most plans some of the records that may stay in the model's files do, in some all.
  void files() {
    const int64_t most = below(4);
    for (const int64_t r : w_.layer_records()) {
      if (w_.may_stay_in_files(r) && !plan_.state_on_device(r) && below(3) < most) plan_.record(r).state = Tier::files;
    }
  }

  // A gradient that waits on the device uses the memory of an input that waits there, so those inputs stay.
  void inputs(bool disk) {
    for (PhasePlan& phase : plan_.layer_phases()) {
      if (disk && phase.input == Tier::host && below(3) == 0) phase.input = Tier::disk;
    }
  }

  void outputs(bool disk) {
    const bool away = below(2) == 0;
    for (int64_t p = 1; away && p < w_.head_phase(); ++p) {
      PhasePlan& phase = plan_.phase(p);
      const Keep waiting = w_.phase(p).waiting_level();
      if (waiting == Keep::nothing) continue;
      if (phase.keep == Keep::nothing && below(2)) phase.keep = waiting;
      if (w_.phase(p).level(phase.keep).may_wait && below(4))
        phase.outputs = disk && below(2) ? Tier::disk : Tier::host;
    }
    if (plan_.outputs_wait_elsewhere()) plan_.rings.output_slots = 2 + below(3);
    if (plan_.activations_on_disk()) plan_.rings.activation_slabs = 1 + below(w_.micro_batches + 1);
  }

  const Workload& w_;
  uint64_t seed_;
  uint64_t index_ = 0;  // of the next random number
  Plan plan_;
};

}  // namespace

Plan random_plan(const Workload& w, uint64_t seed) { return RandomPlan(w, seed).make(); }

}  // namespace megatrain
