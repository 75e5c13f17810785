// What a trainer reports when an update produces a non-finite value, wherever the update runs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/plan/check_plan.h"
#include "tests/pipeline/tiny.h"
#include "tests/support/plan_changes.h"

namespace megatrain::tiny {

// Plans under which records are updated on the host, on the host with moments on disk, and on the device. With clipping
// also plans whose state visits the device, each record in memory of its own or taking turns.
inline std::vector<std::pair<std::string, Plan>> update_places(Tiny& tiny) {
  const Workload& workload = tiny.workload();
  const auto made = [&](Tier tier, bool visits, int64_t slots = 0) {
    Plan plan = tiny.default_plan();
    tier == Tier::hbm ? live_on_device(workload, plan) : live_on_host(workload, plan);
    for (const int64_t record : workload.layer_records()) {
      plan.record(record).weights = Tier::hbm;
      if (visits) plan.record(record).updated_by = UpdatedBy::device;
    }
    plan.rings.visit_slots = slots;
    plan.rings.host_gradients = plan.leaving(workload);
    check_plan(workload, plan);
    return plan;
  };
  std::vector<std::pair<std::string, Plan>> places = {{"host", made(Tier::host, false)},
                                                      {"device", made(Tier::hbm, false)}};
  if (workload.clip) {
    places.emplace_back("visiting", made(Tier::host, true));
    places.emplace_back("visiting in turns", made(Tier::host, true, 2));
  }
  Plan disk = made(Tier::host, false);
  for (int64_t record = 1; record < workload.record_count(); ++record) disk.record(record).moments = Tier::disk;
  disk.rings.moment_slabs = 2;
  places.emplace_back("disk", disk);
  return places;
}

// An infinite second moment leaves every weight finite. The state must not be saved, and the message names the step,
// the layer and the tensor.
inline void expect_infinite_moment_is_named(const std::string& device, const Shape& shape) {
  Tiny tiny(shape, device);
  bool even = true;
  for (const auto& [where, plan] : update_places(tiny)) {
    const int64_t records = tiny.workload().record_count();
    even = !even;
    for (const int64_t record : {int64_t{0}, int64_t{1}, int64_t{4}, records - 1}) {
      if (kSanitized && (record == 0 || record == 4) != even) continue;  // half of them in each place
      const auto trainer = tiny.trainer(plan);
      tiny.step(*trainer, 1);
      trainer->settle();
      const TensorSpec& tensor = trainer->records()[static_cast<size_t>(record)].layout().tensors.back();
      const float infinite = INFINITY;
      trainer->records()[static_cast<size_t>(record)].write_moment(LayerRecord::Moment::second, tensor, 3, 1,
                                                                   &infinite);
      std::string said;
      try {
        tiny.step(*trainer, 2);  // a fast host may already have finished the update
        trainer->settle();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::non_finite);
        said = error.what();
      }
      const std::string layer = record == 0             ? "the embedding"
                                : record == records - 1 ? "the head"
                                                        : fmt::format("layer {}", record - 1);
      EXPECT_NE(said.find("step 2: the update made " + layer + " infinite or NaN"), std::string::npos)
          << where << ", record " << record << ": " << said;
      EXPECT_NE(said.find("the second moment of " + tensor.name + ", at element 3"), std::string::npos)
          << where << ", record " << record << ": " << said;
    }
  }
}

// The next step also detects a non-finite update, and reports it as the previous step's.
inline void expect_next_step_finds_it(const std::string& device) {
  Tiny tiny({}, device);
  for (const auto& [where, plan] : update_places(tiny)) {
    const auto trainer = tiny.trainer(plan);
    tiny.step(*trainer, 1);
    trainer->drain();
    const float infinite = INFINITY;
    LayerRecord& record = trainer->records()[2];
    record.write_moment(LayerRecord::Moment::second, record.layout().tensors.front(), 0, 1, &infinite);
    std::string said;
    try {
      tiny.step(*trainer, 2);
      trainer->drain();
      tiny.step(*trainer, 3);
    } catch (const Error& error) {
      said = error.what();
    }
    EXPECT_NE(said.find("step 2: the update made layer 1 infinite or NaN"), std::string::npos) << where << ": " << said;
  }
}

}  // namespace megatrain::tiny
