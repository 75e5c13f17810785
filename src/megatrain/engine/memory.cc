#include "megatrain/engine/memory.h"

#include <algorithm>
#include <set>

namespace megatrain {

EngineMemory::EngineMemory(Device& device, const Workload& workload, const Plan& plan,
                           const std::vector<LayerRecord>& records)
    : workload_(workload),
      records_(records),
      element_(dtype_bytes(workload.dtype)),
      sums_(gradient_sums(workload, plan)),
      waiting_(waiting_gradients(workload, plan)),
      leaving_elements_(gradient_elements(workload, plan).largest_leaving) {
  widest_ = *std::max_element(plan.sweeps.begin(), plan.sweeps.end());
  const int64_t first_trained = workload.first_trained();
  int64_t resident = 0, visiting = 0, kept = 0, host = 0, kept_at = 0;
  for (int64_t l = 0; l < workload.blocks; ++l) {
    const bool copied = plan.weights[static_cast<size_t>(l)] == Tier::hbm && !plan.state_on_device(l + 1);
    resident_place_.push_back(copied ? resident++ : -1);
    visiting_at_.push_back(plan.visiting(l + 1) ? visiting : -1);
    if (plan.visiting(l + 1)) visiting += workload.visiting_bytes(l + 1);
    const bool backward = l + 1 >= first_trained, on_host = plan.boundary[static_cast<size_t>(l)] == Tier::host;
    const Keep keep = backward ? plan.keep[static_cast<size_t>(l)] : Keep::nothing;
    kept_at_.push_back(kept_at);
    kept_bytes_.push_back(workload.kept_bytes[static_cast<size_t>(keep)]);
    kept_at += widest_ * kept_bytes_.back();
    kept_place_.push_back(backward && !on_host ? kept++ : -1);
    host_place_.push_back(backward && on_host ? host++ : -1);
  }
  kept_place_.push_back(kept);
  for (const int64_t width : plan.sweeps) {
    for (int64_t i = 0; i < width; ++i) local_.push_back(i);
  }

  static const std::set<std::string_view> kElsewhere = {"driver",  "process",  "ops scratch",   "resident state",
                                                        "weights", "low bits", "first moments", "second moments"};
  const MemoryNeed need = memory_need(workload, plan);
  for (const auto& item : need.hbm) {
    if (!kElsewhere.count(item.tag))
      buffers_[std::string(item.tag)] = device.allocate(static_cast<size_t>(item.bytes), std::string(item.tag));
  }
  for (const auto& item : need.host) {
    if (!kElsewhere.count(item.tag))
      buffers_[std::string(item.tag)] = device.allocate_host(static_cast<size_t>(item.bytes), std::string(item.tag));
  }

  // Nobody writes the gaps between the head's tensors, which its norm reads over, nor a frozen record's sum of squares;
  // what is not finite is marked over a zero.
  const auto stream = device.make_stream("zero");
  for (const char* tag : {"head gradient sum", "report"}) stream->zero(at(tag), buffers_.at(tag).bytes());
  stream->synchronize();
}

std::byte* EngineMemory::weights(const Action& a) const {
  const int64_t slab = workload_.block_elements * element_;
  if (a.record == workload_.head_record()) return head_weights(0);
  if (a.record == 0) return head_weights(1);
  if (on_device(a.record)) return records_[static_cast<size_t>(a.record)].weights();
  return a.weights_at >= 0 ? at("weight slots") + a.weights_at * slab
                           : at("resident weights") + resident_place_[static_cast<size_t>(a.record - 1)] * slab;
}

std::byte* EngineMemory::head_weights(int64_t part) const {
  const int64_t record = part == 0 ? workload_.head_record() : 0;
  if (on_device(record)) return records_[static_cast<size_t>(record)].weights();
  return at("head slot") + (part == 0 || on_device(workload_.head_record()) ? 0 : workload_.head_elements) * element_;
}

std::byte* EngineMemory::kept(const Action& a) const {
  const size_t block = static_cast<size_t>(a.record - 1);
  return at("kept activations") + kept_at_[block] + local_[static_cast<size_t>(a.micro_batch)] * kept_bytes_[block];
}

StatePlanes EngineMemory::device_state(const Action& a) const {
  if (on_device(a.record)) return records_[static_cast<size_t>(a.record)].planes();
  return StatePlanes::within(at("visiting state") + visiting_at_[static_cast<size_t>(a.record - 1)],
                             workload_.trained_elements(a.record), workload_.dtype);
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
  return reinterpret_cast<float*>(at("head gradient sum")) + part * workload_.trained_elements(workload_.head_record());
}

float* EngineMemory::gradient_sum(const Action& a) const {
  if (a.record == workload_.head_record()) return head_gradient_sum(0);
  if (a.record == 0) return workload_.tied ? head_gradient_sum(1) : row_gradient_sum();
  return reinterpret_cast<float*>(at("gradient sums")) + sums_.begin[static_cast<size_t>(a.gradient_sum)];
}

std::byte* EngineMemory::gradient_out(const Action& a) const {
  if (a.record == workload_.head_record()) return at("head gradient leaving");
  if (a.record == 0) {
    if (workload_.tied)
      return at("head gradient leaving") +
             (on_device(workload_.head_record()) ? 0 : workload_.trained_elements(workload_.head_record())) * element_;
    return at("embedding row gradients") + workload_.touched_rows() * workload_.hidden * 4;
  }
  return at("gradients leaving") + a.gradient_out * leaving_elements_ * element_;
}

float* EngineMemory::losses(int64_t m) const {
  return reinterpret_cast<float*>(at("losses")) + m * workload_.micro_tokens;
}

int32_t* EngineMemory::correct(int64_t m) const {
  return reinterpret_cast<int32_t*>(at("losses")) + workload_.tokens() + m * workload_.micro_tokens;
}

std::byte* EngineMemory::host_gradient(const Action& a) const {
  // the blocks' slabs from the front; from the back the embedding's, then the head's
  const int64_t embedding = on_device(0) || !workload_.is_trained(0) ? 0
                            : workload_.tied                         ? workload_.trained_elements(0)
                                                                     : workload_.touched_rows() * workload_.hidden;
  const Buffer& waiting = buffers_.at("waiting gradients");
  std::byte* end = waiting.data() + waiting.bytes();
  if (a.record == 0) return end - embedding * element_;
  if (a.record == workload_.head_record()) return end - (embedding + workload_.trained_elements(a.record)) * element_;
  return waiting.data() + waiting_.begin[static_cast<size_t>(a.host_gradient)] * element_;
}

std::byte* EngineMemory::host_boundary(const Action& a) const {
  const int64_t index = host_place_[static_cast<size_t>(a.record - 1)] * workload_.micro_batches + a.micro_batch;
  return at("host boundaries") + index * workload_.boundary_bytes();
}

}  // namespace megatrain
