#include "megatrain/train/model_work.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "megatrain/base/error.h"
#include "megatrain/model/phase_cost.h"

namespace megatrain {

namespace {

// The costs of all phases, by number. They are computed once per kind of layer, since layers of one kind with the same
// trained tensors cost the same. This saves time: a long sequence in many pieces has many notes.
std::vector<PhaseCost> phase_costs(const Model& model, const NotesShape& shape) {
  std::map<std::pair<std::string, std::vector<int64_t>>, std::vector<PhaseCost>> of_kind;
  std::vector<PhaseCost> all = {phase_cost(model.embedding, shape)};
  for (const Layer& layer : model.layers) {
    std::vector<int64_t> trained;  // elements of each tensor: an adapter may have another rank in another layer
    for (const LayerLayout& record : layer.records) {
      for (const TensorSpec& tensor : record.tensors) trained.push_back(tensor.trainable ? tensor.elements() : 0);
    }
    const auto [costs, is_new] = of_kind.try_emplace({layer.kind, std::move(trained)});
    for (size_t phase = 0; is_new && phase < layer.phases.size(); ++phase)
      costs->second.push_back(phase_cost(*layer.phases[phase], shape));
    all.insert(all.end(), costs->second.begin(), costs->second.end());
  }
  all.push_back({.forward = head_cost(model, shape), .backward = {}, .levels = {{}}, .parts = {}});  // in one action
  return all;
}

PhaseWork phase_work(const Model::NumberedPhase& numbered, const PhaseCost& cost, const NotesShape& shape) {
  const double tokens = static_cast<double>(shape.sequences * shape.seq_len);
  PhaseWork work{
      .records = numbered.records,
      .width = numbered.phase->in_width(),
      .levels = {},
      .forward_flops = cost.forward.flops / tokens,
      .backward_flops = cost.backward.flops / tokens,
      .attention = {.forward = cost.forward.attention / tokens, .backward = cost.backward.attention / tokens},
      .recurrence = {.forward = cost.forward.recurrence / tokens, .backward = cost.backward.recurrence / tokens},
      .router_bytes = numbered.phase->router_bytes(),
      .shared_width = numbered.phase->shared_width(),
      .reads = numbered.reads,
      .looks_up = numbered.looks_up,
      .ends = numbered.phase->ends(),
      .between_parts_bytes = numbered.phase->between_parts_bytes()};
  for (size_t part = 0; numbered.parts.size() > 1 && part < numbered.parts.size(); ++part) {
    work.parts.push_back({.records = numbered.parts[part],
                          .forward_flops = cost.parts[part].forward.flops / tokens,
                          .backward_flops = cost.parts[part].backward.flops / tokens,
                          .recurrence = {.forward = cost.parts[part].forward.recurrence / tokens,
                                         .backward = cost.parts[part].backward.recurrence / tokens}});
  }
  for (const KeepLevel& level : numbered.phase->keep_levels()) {
    const PhaseCost::Level& of_level = cost.levels[work.levels.size()];
    KeepWork& kept = work.levels.emplace_back(KeepWork{level});
    kept.recomputed_flops = of_level.recomputed.flops / tokens;
    kept.recomputed_bytes = of_level.recomputed.bytes / tokens;
    kept.spared_flops = of_level.spared.flops / tokens;
    kept.recomputed_attention = of_level.recomputed.attention / tokens;
    kept.spared_attention = of_level.spared.attention / tokens;
    kept.recomputed_recurrence = of_level.recomputed.recurrence / tokens;
    kept.spared_recurrence = of_level.spared.recurrence / tokens;
  }
  return work;
}

// Fills in the records whose rows some phase looks up.
void add_tables(const Model& model, Workload& w) {
  const std::vector<LayerLayout> layouts = model.layouts();
  for (const PhaseWork& phase : w.phases) {
    if (phase.looks_up < 0) continue;
    RecordWork& record = w.records[static_cast<size_t>(phase.looks_up)];
    const TensorSpec& table = layouts[static_cast<size_t>(phase.looks_up)].tensors.front();
    ensure(table.rows == layouts.front().tensors.front().rows, "a table has a row for every token");
    record.rows = table.rows;
    record.row_width = table.cols;
    record.whole = std::ranges::any_of(w.phases, [&](const PhaseWork& other) {
      return other.looks_up != phase.looks_up && std::ranges::count(other.records, phase.looks_up) > 0;
    });
  }
}

}  // namespace

Workload model_work(const Model& model, const NotesShape& shape) {
  Workload w;
  for (const LayerLayout& layout : model.layouts()) {
    w.parameters += layout.parameters();
    for (const TensorSpec& tensor : layout.tensors) w.trained_parameters += tensor.trainable ? tensor.elements() : 0;
    w.records.push_back({.elements = layout.elements,
                         .trained = layout.state_elements,
                         .blocks = layout.state_blocks,
                         .low = layout.low_elements,
                         .norm_parts = std::ssize(layout.norm_parts()),
                         .dtype = layout.dtype(),
                         .packed_bytes = layout.packed_bytes,
                         .adapter = layout.is_adapter(),
                         .buffers = layout.is_buffers(),
                         .token_rows = layout.is_token_rows(),
                         .sums = layout.is_token_rows() && model.embedding.shares_token_rows() ? 2 : 1});
  }
  const std::vector<PhaseCost> costs = phase_costs(model, shape);
  for (const Model::NumberedPhase& numbered : model.phases()) {
    w.phases.push_back(phase_work(numbered, costs[w.phases.size()], shape));
  }
  add_tables(model, w);
  for (const Model::NumberedPhase& numbered : model.phases()) {
    for (const std::vector<int64_t>& part : numbered.parts) {
      for (size_t place = 0; place < part.size(); ++place) {
        if (w.is_layer_record(part[place]))
          w.records[static_cast<size_t>(part[place])].place = static_cast<int64_t>(place);
      }
    }
  }
  w.active_parameters = w.parameters - idle_parameters(model.config);
  w.experts = w.router_bytes() > 0 ? model.config.experts.count : 0;
  w.activation_dtype = model.shape.dtype;
  w.state = model.shape.state;
  w.micro_tokens = model.shape.tokens;
  w.sequences = shape.sequences;
  w.workspace_bytes = model.workspace_bytes();
  w.rope_bytes = model.table_bytes();
  return w;
}

}  // namespace megatrain
