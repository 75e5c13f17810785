#include "megatrain/model/step_notes.h"

#include <algorithm>
#include <iterator>

#include "megatrain/device/device.h"
#include "megatrain/model/block.h"
#include "megatrain/model/head.h"
#include "megatrain/model/layers.h"
#include "megatrain/ops/op_notes.h"

namespace megatrain {

namespace {

// Addresses nobody reads, 256-byte aligned as all slabs are, and far apart.
std::byte* made_up(int which) { return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(which) << 44); }

// Nothing is ever enqueued on it.
class NoStream final : public Stream {
 public:
  void copy(void*, const void*, size_t) override {}
  void zero(void*, size_t) override {}
  void record(Event&) override {}
  void wait(Event&) override {}
  void synchronize() override {}
  void check() override {}
};

void append(std::vector<OpNote>& to, const std::vector<OpNote>& notes) {
  to.insert(to.end(), notes.begin(), notes.end());
}

}  // namespace

std::vector<OpNote> StepNotes::recomputing() const {
  std::vector<OpNote> all = forward;
  append(all, head);
  append(all, backward);
  return all;
}

std::vector<OpNote> StepNotes::keeping() const {
  std::vector<OpNote> all = forward;
  append(all, head);
  std::copy_if(backward.begin(), backward.end(), std::back_inserter(all),
               [](const OpNote& note) { return !is_forward_call(note); });
  return all;
}

StepNotes step_notes(const ModelConfig& model, const NotesShape& shape, const FreezeRules& rules) {
  const std::vector<LayerLayout> layouts = model_layouts(model, rules);
  const auto trained = [](const LayerLayout& layout) { return layout.state_elements > 0; };
  const int64_t first_trained = std::find_if(layouts.begin(), layouts.end(), trained) - layouts.begin();
  const int64_t tokens = shape.sequences * shape.seq_len;
  const RopeTable rope{.cos = reinterpret_cast<const float*>(made_up(1)),
                       .sin = reinterpret_cast<const float*>(made_up(2))};
  const BlockTemplate block(model, shape.dtype, tokens, shape.mlp_chunk, rope);
  const HeadTemplate head(model, shape.dtype, tokens, shape.head_chunk);
  MicroBatchView micro;
  micro.tokens = tokens;
  micro.labels = micro.positions = reinterpret_cast<const int32_t*>(made_up(3));
  micro.documents = {.begin = reinterpret_cast<const int32_t*>(made_up(4)),
                     .count = shape.sequences,
                     .longest = shape.seq_len,
                     .uniform = true};
  const View x = matrix(made_up(5), shape.dtype, tokens, model.hidden);
  const View y = matrix(made_up(6), shape.dtype, tokens, model.hidden);
  const View grad = matrix(made_up(7), shape.dtype, tokens, model.hidden);
  std::byte *weights = made_up(8), *workspace = made_up(9);
  float* grads = reinterpret_cast<float*>(made_up(10));

  OpNotes ops;
  NoStream stream;
  StepNotes notes;
  for (int64_t b = 0; b < model.layers; ++b) {
    block.forward(ops, stream,
                  {.block = b, .weights = weights, .x = x, .y = y, .micro_batch = micro, .workspace = workspace});
    append(notes.forward, ops.take());
    if (b + 1 < first_trained) continue;
    block.backward(ops, stream,
                   {.block = b,
                    .weights = weights,
                    .x = x,
                    .grad = grad,
                    .weight_grads = grads,
                    .gradients_at = block_gradients(layouts[static_cast<size_t>(b + 1)]),
                    .accumulate = shape.accumulate,
                    .micro_batch = micro,
                    .workspace = workspace});
    append(notes.backward, ops.take());
  }
  const HeadGradients to = head_gradients(layouts.back());
  const bool table = model.tied ? trained(layouts.front()) : to.table >= 0;
  head.run(ops, stream,
           {.norm = weights,
            .table = made_up(11),
            .x = x,
            .scale = 1.0f,
            .loss = reinterpret_cast<float*>(made_up(12)),
            .correct = reinterpret_cast<int32_t*>(made_up(13)),
            .micro_batch = micro,
            .workspace = workspace,
            .grad = grad,
            .grad_is_used = first_trained <= model.layers,
            .norm_grad = to.norm >= 0 ? grads : nullptr,
            .table_grad = table ? reinterpret_cast<float*>(made_up(14)) : nullptr,
            .accumulate = shape.accumulate});
  notes.head = ops.take();
  return notes;
}

}  // namespace megatrain
