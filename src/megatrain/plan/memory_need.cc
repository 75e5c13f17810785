#include "megatrain/plan/plan.h"

#include <algorithm>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/plan/gradient_slabs.h"

namespace megatrain {

namespace {

int64_t sum(const std::vector<MemoryNeed::Item>& items) {
  int64_t total = 0;
  for (const auto& item : items) total += item.bytes;
  return total;
}

}  // namespace

int64_t Plan::host_updated_blocks(const Workload& w) const {
  int64_t count = 0;
  for (int64_t block = 1; block <= w.blocks; ++block) count += w.is_trained(block) && !updated_on_device(block);
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
  const int64_t first_trained = w.first_trained();
  const GradientElements gradients = gradient_elements(w, plan);

  int64_t streamed = 0, copied = 0, resident_state = 0, visiting = 0, host_boundaries = 0, passing = 0, kept = 0;
  int64_t host_elements = 0, host_moments = 0, largest = 0;
  for (int64_t record = 0; record < w.records(); ++record) {
    largest = std::max(largest, w.trained_elements(record));
    if (plan.state_on_device(record)) {
      resident_state += w.state_bytes(record);
    } else {
      host_elements += w.record_elements(record);
      host_moments += w.trained_elements(record);
    }
    if (record == 0 || record == w.head_record()) continue;
    const size_t at = static_cast<size_t>(record - 1);
    if (!plan.state_on_device(record)) (plan.weights[at] == Tier::host ? streamed : copied) += 1;
    if (plan.visiting(record)) visiting += w.visiting_bytes(record);
    if (record < first_trained) {  // its input only passes through
      ++passing;
      continue;
    }
    host_boundaries += plan.boundary[at] == Tier::host;
    kept += widest * w.kept_bytes[static_cast<size_t>(plan.keep[at])];
  }
  // Elements of the head's own tensors and of the table it is tied to, where the host holds them.
  const int64_t head_from_host = head_on_device ? 0 : w.head_elements,
                table_from_host = w.tied && !table_on_device ? w.embedding_elements : 0;
  const int64_t rows_from_host = table_on_device ? 0 : rows;
  // Elements of their gradients, and of those the host takes.
  const bool table_trained = w.is_trained(0);
  const int64_t head_gradient = w.trained_elements(w.head_record()),
                table_gradient = w.tied ? w.trained_elements(0) : 0;
  const int64_t head_leaving = head_on_device ? 0 : head_gradient, table_leaving = table_on_device ? 0 : table_gradient;
  const int64_t rows_leaving = !w.tied && table_trained ? rows_from_host : 0;

  MemoryNeed need;
  need.hbm = {
      {"driver", w.device_base_bytes},
      {"weight slots", streamed > 0 ? plan.slots * block : 0},
      {"resident weights", copied * block},
      {"resident state", resident_state},
      {"visiting state", visiting},
      {"head slot", (head_from_host + table_from_host) * element},
      {"gradient sums", gradients.sums * 4},
      {"head gradient sum", (head_gradient + table_gradient) * 4},
      {"gradients leaving", plan.gradient_slabs * gradients.largest_leaving * element},
      {"head gradient leaving", (head_leaving + table_leaving) * element},
      {"embedding rows", rows_from_host * element},
      // tied: the rows are added to the head's slab at the end of the step and leave from there
      {"embedding row gradients", (table_trained ? rows * 4 : 0) + rows_leaving * element},
      {"kept activations", kept},
      {"kept boundaries", (w.blocks - passing - host_boundaries + 1) * boundary},  // + 1: the head's input
      {"boundary slots", passing + host_boundaries > 0 ? plan.boundary_slots * boundary : 0},
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
      {"first moments", host_moments * 4},
      {"second moments", host_moments * 4},
      {"waiting gradients", (gradients.waiting + head_leaving + table_leaving + rows_leaving) * element},
      {"host boundaries", host_boundaries * w.micro_batches * w.boundary_bytes()},
      {"staged rows", rows_from_host * element},
      {"staged inputs", w.input_bytes},
      {"host report", (2 * w.records() + 5) * 8},
  };
  return need;
}

}  // namespace megatrain
