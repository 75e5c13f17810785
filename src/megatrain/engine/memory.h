// The engine's own memory: slots, slabs, boundaries and staging, allocated once from the plan's figures. Every place an
// action names resolves here to an address; nothing is allocated after the first step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "megatrain/device/device.h"
#include "megatrain/engine/schedule.h"
#include "megatrain/plan/gradient_slabs.h"
#include "megatrain/store/record.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

class EngineMemory {
 public:
  // Allocates every planned item that is not somebody else's (records, ops scratch, the driver). The records must
  // outlive it.
  EngineMemory(Device& device, const Workload& workload, const Plan& plan, const std::vector<LayerRecord>& records);

  const Workload& workload() const { return workload_; }

  // Device. `part` of the head: 0 its own tensors, 1 the tied table.
  std::byte* weights(const Action& action) const;  // the slab a record is bound to
  std::byte* head_weights(int64_t part) const;
  std::byte* kept(const Action& action) const;           // inner activations of a block and micro-batch
  StatePlanes device_state(const Action& action) const;  // of the record, living here or visiting
  // Visiting planes hold the trained tensors alone, all by their state_offset.
  bool visits(int64_t record) const {
    return record >= 1 && record <= workload_.blocks && visiting_at_[static_cast<size_t>(record - 1)] >= 0;
  }
  bool table_on_device() const { return on_device(0); }  // the embedding's whole table
  bool updated_on_device(int64_t record) const { return on_device(record) || visits(record); }
  View boundary_in(const Action& action) const;   // (T, H) input of action.record
  View boundary_out(const Action& action) const;  // (T, H) output of action.record
  View gradient_stream(const Action& action) const;
  float* gradient_sum(const Action& action) const;  // slab of the record, whichever it is
  float* head_gradient_sum(int64_t part) const;
  float* row_gradient_sum() const { return reinterpret_cast<float*>(at("embedding row gradients")); }
  std::byte* gradient_out(const Action& action) const;
  std::byte* device_rows() const { return at("embedding rows"); }
  std::byte* inputs() const { return at("inputs"); }
  std::byte* workspace() const { return at("workspace"); }
  std::byte* rope_table() const { return at("rope table"); }
  float* losses(int64_t micro_batch) const;     // (T)
  int32_t* correct(int64_t micro_batch) const;  // (T)
  double* norm_partials() const { return reinterpret_cast<double*>(at("norm partials")); }
  double* squares(int64_t record) const { return reinterpret_cast<double*>(at("report")) + record; }
  double* loss_sum() const { return squares(workload_.records()); }
  int64_t* correct_sum() const { return reinterpret_cast<int64_t*>(squares(workload_.records() + 1)); }
  int64_t report_bytes() const { return (workload_.records() + 2) * 8; }
  // 0, or the record, counted from 1, in which an update on the device first made a weight or a moment that is not
  // finite. Even and odd steps have one each: a step's report reads its predecessor's while its own updates run.
  int32_t* not_finite(int64_t sequence) const {
    return reinterpret_cast<int32_t*>(squares(workload_.records() + 2)) + sequence % 2;
  }
  float* clip() const { return reinterpret_cast<float*>(squares(workload_.records() + 4)); }

  // Host.
  std::byte* staged_rows() const { return at("staged rows"); }
  std::byte* staged_inputs() const { return at("staged inputs"); }
  std::byte* host_gradient(const Action& action) const;
  std::byte* host_boundary(const Action& action) const;
  const double* host_report() const {
    return reinterpret_cast<double*>(at("host report"));
  }                                   // squares, loss sum, correct sum
  int32_t* host_not_finite() const {  // of the step before
    return reinterpret_cast<int32_t*>(at("host report") + report_bytes());
  }
  double* host_squares(int64_t record) const {
    return reinterpret_cast<double*>(at("host report")) + workload_.records() + 5 + record;
  }

 private:
  std::byte* at(const std::string& tag) const { return buffers_.at(tag).data(); }
  View boundary(int64_t block, int64_t slot, int64_t micro_batch) const;
  bool on_device(int64_t record) const { return records_[static_cast<size_t>(record)].tier() == Tier::hbm; }

  Workload workload_;
  const std::vector<LayerRecord>& records_;
  int64_t element_;                      // bytes of a weight or activation
  int64_t widest_ = 0;                   // micro-batches of the widest sweep
  std::vector<int64_t> resident_place_;  // (L) among blocks that have a copy of their weights here, -1: others
  std::vector<int64_t> visiting_at_;     // (L) bytes into the visiting state, -1: does not visit
  std::vector<int64_t> kept_at_;         // (L) bytes into what is kept
  std::vector<int64_t> kept_bytes_;      // (L) of one micro-batch
  std::vector<int64_t> kept_place_;      // (L + 1) among kept boundaries, -1: not kept here; last: the head's input
  std::vector<int64_t> host_place_;      // (L) among boundaries on the host
  std::vector<int64_t> local_;           // (micro-batches) position within its sweep
  GradientSlabs sums_, waiting_;
  int64_t leaving_elements_;  // of a slab that gradients leave from
  std::map<std::string, Buffer> buffers_;
};

}  // namespace megatrain
