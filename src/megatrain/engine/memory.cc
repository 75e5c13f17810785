#include "megatrain/engine/memory.h"

#include <algorithm>
#include <set>

namespace megatrain {

EngineMemory::EngineMemory(Device& device, const Workload& workload, const Plan& plan)
    : workload_(workload), element_(dtype_bytes(workload.dtype)) {
  widest_ = *std::max_element(plan.sweeps.begin(), plan.sweeps.end());
  int64_t resident = 0, kept = 0, host = 0;
  for (int64_t l = 0; l < workload.blocks; ++l) {
    resident_place_.push_back(plan.weights[static_cast<size_t>(l)] == Tier::hbm ? resident++ : -1);
    const bool on_host = plan.boundary[static_cast<size_t>(l)] == Tier::host;
    kept_place_.push_back(on_host ? -1 : kept++);
    host_place_.push_back(on_host ? host++ : -1);
  }
  kept_place_.push_back(kept);
  for (const int64_t width : plan.sweeps) {
    for (int64_t i = 0; i < width; ++i) local_.push_back(i);
  }

  static const std::set<std::string> kElsewhere = {"driver",   "ops scratch",   "weights",
                                                   "low bits", "first moments", "second moments"};
  const MemoryNeed need = memory_need(workload, plan);
  for (const auto& item : need.hbm) {
    if (!kElsewhere.count(item.tag)) buffers_[item.tag] = device.allocate(static_cast<size_t>(item.bytes), item.tag);
  }
  for (const auto& item : need.host) {
    if (!kElsewhere.count(item.tag))
      buffers_[item.tag] = device.allocate_host(static_cast<size_t>(item.bytes), item.tag);
  }

  // Nobody writes the gaps between a layer's tensors; the norm reads over them.
  const auto stream = device.make_stream("zero");
  for (const char* tag : {"gradient sums", "head gradient sum"}) stream->zero(at(tag), buffers_.at(tag).bytes());
  stream->synchronize();
}

std::byte* EngineMemory::weights(const Action& a) const {
  const int64_t slab = workload_.block_elements * element_;
  if (a.record == workload_.head_record()) return head_slot(0);
  if (a.record == 0) return head_slot(1);  // the tied table
  return a.weights_at >= 0 ? at("weight slots") + a.weights_at * slab
                           : at("resident weights") + resident_place_[static_cast<size_t>(a.record - 1)] * slab;
}

std::byte* EngineMemory::head_slot(int64_t part) const {
  return at("head slot") + part * workload_.head_elements * element_;
}

View EngineMemory::boundary(int64_t block, int64_t slot, int64_t micro_batch) const {
  const int64_t place = slot >= 0 ? slot : kept_place_[static_cast<size_t>(block - 1)];
  std::byte* base = slot >= 0 ? at("boundary slots") : at("kept boundaries");
  const int64_t index = place * widest_ + local_[static_cast<size_t>(micro_batch)];
  return matrix(base + index * workload_.boundary_bytes(), workload_.dtype, workload_.micro_tokens, workload_.hidden);
}

View EngineMemory::boundary_in(const Action& a) const { return boundary(a.record, a.boundary_in, a.micro_batch); }
View EngineMemory::boundary_out(const Action& a) const { return boundary(a.record + 1, a.boundary_out, a.micro_batch); }

View EngineMemory::gradient_stream(const Action& a) const {
  return matrix(at("gradient stream") + local_[static_cast<size_t>(a.micro_batch)] * workload_.boundary_bytes(),
                workload_.dtype, workload_.micro_tokens, workload_.hidden);
}

float* EngineMemory::head_gradient_sum(int64_t part) const {
  return reinterpret_cast<float*>(at("head gradient sum")) + part * workload_.head_elements;
}

float* EngineMemory::gradient_sum(const Action& a) const {
  if (a.record == workload_.head_record()) return head_gradient_sum(0);
  if (a.record == 0) return workload_.tied ? head_gradient_sum(1) : row_gradient_sum();
  return reinterpret_cast<float*>(at("gradient sums")) + a.gradient_sum * workload_.block_elements;
}

std::byte* EngineMemory::gradient_out(const Action& a) const {
  if (a.record == workload_.head_record()) return at("head gradient leaving");
  if (a.record == 0) {
    return workload_.tied ? at("head gradient leaving") + workload_.head_elements * element_
                          : at("embedding row gradients") + workload_.touched_rows() * workload_.hidden * 4;
  }
  return at("gradients leaving") + a.gradient_out * workload_.block_elements * element_;
}

float* EngineMemory::losses(int64_t m) const {
  return reinterpret_cast<float*>(at("losses")) + m * workload_.micro_tokens;
}

int32_t* EngineMemory::correct(int64_t m) const {
  return reinterpret_cast<int32_t*>(at("losses")) + workload_.tokens() + m * workload_.micro_tokens;
}

std::byte* EngineMemory::host_gradient(const Action& a) const {
  const int64_t blocks = static_cast<int64_t>(buffers_.at("waiting gradients").bytes()) / element_ -
                         workload_.head_elements -
                         (workload_.tied ? workload_.embedding_elements : workload_.touched_rows() * workload_.hidden);
  std::byte* base = at("waiting gradients");
  if (a.record == workload_.head_record()) return base + blocks * element_;
  if (a.record == 0) return base + (blocks + workload_.head_elements) * element_;
  return base + a.host_gradient * workload_.block_elements * element_;
}

std::byte* EngineMemory::host_boundary(const Action& a) const {
  const int64_t index = host_place_[static_cast<size_t>(a.record - 1)] * workload_.micro_batches + a.micro_batch;
  return at("host boundaries") + index * workload_.boundary_bytes();
}

}  // namespace megatrain
