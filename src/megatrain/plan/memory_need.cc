#include "megatrain/plan/plan.h"

#include <algorithm>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"

namespace megatrain {

namespace {

int64_t sum(const std::vector<MemoryNeed::Item>& items) {
  int64_t total = 0;
  for (const auto& item : items) total += item.bytes;
  return total;
}

int64_t count_tier(const std::vector<Tier>& tiers, Tier tier) { return std::count(tiers.begin(), tiers.end(), tier); }

}  // namespace

int64_t MemoryNeed::hbm_bytes() const { return sum(hbm); }
int64_t MemoryNeed::host_bytes() const { return sum(host); }

int64_t MemoryNeed::bytes_of(const std::string& tag) const {
  for (const auto* items : {&hbm, &host}) {
    for (const Item& item : *items) {
      if (item.tag == tag) return item.bytes;
    }
  }
  fail_internal("no memory is planned under the tag '" + tag + "'");
}

MemoryNeed memory_need(const Workload& w, const Plan& plan) {
  const int64_t element = dtype_bytes(w.dtype);
  const int64_t block = w.block_elements * element;
  const int64_t head = w.head_elements * element + (w.tied ? w.embedding_elements * element : 0);
  const int64_t head_grad = w.head_elements + (w.tied ? w.embedding_elements : 0);
  const int64_t rows = w.touched_rows() * w.hidden;
  const int64_t widest = *std::max_element(plan.sweeps.begin(), plan.sweeps.end());
  const int64_t boundary = widest * w.boundary_bytes();
  const bool slab_per_block = plan.sweeps.size() > 1;  // half-summed gradients never leave the device
  const int64_t host_boundaries = count_tier(plan.boundary, Tier::host);
  const int64_t streamed = count_tier(plan.weights, Tier::host);
  const int64_t largest = std::max({w.embedding_elements, w.block_elements, w.head_elements});

  MemoryNeed need;
  need.hbm = {
      {"driver", w.device_base_bytes},
      {"weight slots", streamed > 0 ? plan.slots * block : 0},
      {"resident weights", (w.blocks - streamed) * block},
      {"head slot", head},
      {"gradient sums", (slab_per_block ? w.blocks : 1) * w.block_elements * 4},
      {"head gradient sum", head_grad * 4},
      {"gradients leaving", plan.gradient_slabs * block},
      {"head gradient leaving", head_grad * element},
      {"embedding rows", rows * element},
      // tied: the rows are added to the head's slab at the end of the step and leave from there
      {"embedding row gradients", rows * (4 + (w.tied ? 0 : element))},
      {"kept boundaries", (w.blocks - host_boundaries + 1) * boundary},  // + 1: the head's input
      {"boundary slots", host_boundaries > 0 ? plan.boundary_slots * boundary : 0},
      {"gradient stream", boundary},
      {"workspace", w.workspace_bytes},
      {"ops scratch", w.scratch_bytes},
      {"inputs", w.input_bytes},
      {"rope table", w.rope_bytes},
      {"losses", w.tokens() * 8},
      {"norm partials", ceil_div(largest, kNormPartialElements) * 8},
      {"report", (w.records() + 4) * 8},
  };
  need.host = {
      {"weights", w.all_elements() * element},
      {"low bits", w.dtype == DType::bf16 ? w.all_elements() * 2 : 0},
      {"first moments", w.all_elements() * 4},
      {"second moments", w.all_elements() * 4},
      {"waiting gradients",
       (plan.host_gradient_slabs * w.block_elements + w.head_elements + (w.tied ? w.embedding_elements : rows)) *
           element},
      {"host boundaries", host_boundaries * w.micro_batches * w.boundary_bytes()},
      {"staged rows", rows * element},
      {"staged inputs", w.input_bytes},
      {"host report", (2 * w.records() + 4) * 8},
  };
  return need;
}

}  // namespace megatrain
