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

}  // namespace

int64_t Plan::host_updated_blocks() const {
  int64_t count = 0;
  for (int64_t block = 1; block <= static_cast<int64_t>(weights.size()); ++block) count += !updated_on_device(block);
  return count;
}

int64_t MemoryNeed::hbm_bytes() const { return sum(hbm); }
int64_t MemoryNeed::host_bytes() const { return sum(host); }

int64_t MemoryNeed::bytes_of(std::string_view tag) const {
  for (const auto* items : {&hbm, &host}) {
    for (const Item& item : *items) {
      if (item.tag == tag) return item.bytes;
    }
  }
  fail_internal("no memory is planned under the tag '" + std::string(tag) + "'");
}

MemoryNeed memory_need(const Workload& w, const Plan& plan) {
  const int64_t element = dtype_bytes(w.dtype);
  const int64_t block = w.block_elements * element;
  const int64_t rows = w.touched_rows() * w.hidden;
  const int64_t widest = *std::max_element(plan.sweeps.begin(), plan.sweeps.end());
  const int64_t boundary = widest * w.boundary_bytes();
  const bool head_on_device = plan.state_on_device(w.head_record()), table_on_device = plan.state_on_device(0);
  const int64_t largest = std::max({w.embedding_elements, w.block_elements, w.head_elements});

  int64_t streamed = 0, copied = 0, resident_state = 0, visiting = 0, own_sums = 0, host_boundaries = 0, kept = 0;
  for (int64_t record = 0; record < w.records(); ++record) {
    if (plan.state_on_device(record)) resident_state += w.state_bytes(record);
    if (record == 0 || record == w.head_record()) continue;
    const size_t at = static_cast<size_t>(record - 1);
    if (!plan.state_on_device(record)) (plan.weights[at] == Tier::host ? streamed : copied) += 1;
    visiting += plan.visiting(record);
    own_sums += plan.updated_on_device(record);
    host_boundaries += plan.boundary[at] == Tier::host;
    kept += widest * w.kept_bytes[static_cast<size_t>(plan.keep[at])];
  }
  // Half-summed gradients never leave the device, and a gradient the device itself uses waits where it was summed.
  const int64_t shared_sums = own_sums < w.blocks ? 1 : 0;
  const int64_t sums = plan.sweeps.size() > 1 ? w.blocks : own_sums + shared_sums;
  // Elements of the head's own tensors and of the table it is tied to, where the host holds them.
  const int64_t head_from_host = head_on_device ? 0 : w.head_elements,
                table_from_host = w.tied && !table_on_device ? w.embedding_elements : 0;
  const int64_t rows_from_host = table_on_device ? 0 : rows;
  const int64_t host_elements = w.all_elements() - resident_state / 12;

  MemoryNeed need;
  need.hbm = {
      {"driver", w.device_base_bytes},
      {"weight slots", streamed > 0 ? plan.slots * block : 0},
      {"resident weights", copied * block},
      {"resident state", resident_state},
      {"visiting state", visiting * w.state_bytes(1)},
      {"head slot", (head_from_host + table_from_host) * element},
      {"gradient sums", sums * w.block_elements * 4},
      {"head gradient sum", (w.head_elements + (w.tied ? w.embedding_elements : 0)) * 4},
      {"gradients leaving", plan.host_updated_blocks() > 0 ? plan.gradient_slabs * block : 0},
      {"head gradient leaving", (head_from_host + table_from_host) * element},
      {"embedding rows", rows_from_host * element},
      // tied: the rows are added to the head's slab at the end of the step and leave from there
      {"embedding row gradients", rows * 4 + (w.tied ? 0 : rows_from_host * element)},
      {"kept activations", kept},
      {"kept boundaries", (w.blocks - host_boundaries + 1) * boundary},  // + 1: the head's input
      {"boundary slots", host_boundaries > 0 ? plan.boundary_slots * boundary : 0},
      {"gradient stream", boundary},
      {"workspace", w.workspace_bytes},
      {"ops scratch", w.scratch_bytes},
      {"inputs", w.input_bytes},
      {"rope table", w.rope_bytes},
      {"losses", w.tokens() * 8},
      {"norm partials", ceil_div(largest, kNormPartialElements) * 8},
      {"report", (w.records() + 5) * 8},
  };
  need.host = {
      {"process", w.host_base_bytes},
      {"weights", host_elements * element},
      {"low bits", w.dtype == DType::bf16 ? host_elements * 2 : 0},
      {"first moments", host_elements * 4},
      {"second moments", host_elements * 4},
      {"waiting gradients",
       (plan.host_gradient_slabs * w.block_elements + head_from_host + (w.tied ? table_from_host : rows_from_host)) *
           element},
      {"host boundaries", host_boundaries * w.micro_batches * w.boundary_bytes()},
      {"staged rows", rows_from_host * element},
      {"staged inputs", w.input_bytes},
      {"host report", (2 * w.records() + 5) * 8},
  };
  return need;
}

}  // namespace megatrain
