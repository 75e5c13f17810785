#include "megatrain/model/layers/channels/experts.h"

#include <algorithm>
#include <cmath>

#include "megatrain/base/error.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

Linear router_of(const LinearTensors& first) {
  const bool is_module = find_operand(first.record, BlockOperand::router_linear).offset >= 0;
  return {first, is_module ? BlockOperand::router_linear : BlockOperand::router, BlockOperand::router_bias};
}

}  // namespace

struct Experts::Routing {
  View logits;           // (T, E) fp32
  int32_t* experts;      // (T * k) by pair
  float* weights;        // (T * k) by pair
  float* shares;         // (T * k) the router's weights before the factors; same as `weights` without factors
  View normed;           // (T, H) the router's input, if it has a norm
  float* inv_rms;        // (T)
  int32_t* begin;        // (E + 1)
  int32_t* pair_of_row;  // (T * k)
  int32_t* row_of_pair;  // (T * k)
};

struct Experts::Rows {
  View x;               // (R, H) gathered inputs; later, in forward, the outputs of the down matmul
  View gate_up;         // (R, 2F), or (R, F) without a gate
  View act;             // (R, F)
  View sum;             // (T, H) fp32 sum over the groups so far, if there are several
  std::byte* adapters;  // AdapterBinding::scratch of a group
};

struct Experts::Work final : Channel::Work {
  Routing routing{};
  Rows rows{};
  View grad_rows;         // (R, H) gathered dL/dy, later dL/dx
  View grad_act;          // (R, F)
  float* grad_weights{};  // (T * k) by pair
  View grad_logits;       // (T, E)
  View grad_routed;       // (T, H) gradient of Routing::normed
};

Experts::Experts(const ExpertsConfig& config, DType dtype, const Records& records, NormShape norm)
    : c_(config),
      dtype_(dtype),
      router_norm_(records.first.record, BlockOperand::router_norm, norm),
      router_(router_of(records.first)),
      factors_(find_operand(records.first.record, BlockOperand::expert_factors)),
      choice_bias_(records.buffers ? find_operand(*records.buffers, BlockOperand::choice_bias) : WeightOperand()),
      adapted_(!records.adapters.empty()) {
  const std::span<const LayerLayout> groups = records.groups, adapters = records.adapters;
  int64_t held = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const LinearTensors from(groups[i], adapted_ ? &adapters[i] : nullptr);
    const int64_t count = std::ssize(from.record.norm_parts());
    groups_.push_back({held, count, from.record.elements,
                       ExpertLinear(from, count, BlockOperand::expert_gate_up, BlockOperand::expert_gate_up_bias),
                       ExpertLinear(from, count, BlockOperand::expert_down, BlockOperand::expert_down_bias)});
    held += count;
  }
  ensure(held == c_.count, "the records hold all experts of the layer");
  if (!router_norm_.exists()) return;
  ensure(!in_parts(), "a router with a norm has all experts in one record");
  router_ = router_.times(1 / std::sqrt(static_cast<double>(router_.in_width())));
}

// Maximum rows of the largest group: a token chooses an expert at most once.
int64_t Experts::most_rows(int64_t tokens) const {
  int64_t most = 0;
  for (const Group& group : groups_) most = std::max(most, tokens * std::min(group.count, c_.chosen));
  return most;
}

Experts::Routing Experts::carve_routing(Carver& work, Carver& chosen, Carver& logits, int64_t tokens) const {
  const int64_t pairs = tokens * c_.chosen;
  Routing r{};
  r.logits = logits.view(DType::f32, tokens, c_.count);
  r.experts = chosen.array<int32_t>(pairs);
  r.weights = chosen.array<float>(pairs);
  r.shares = factors_.cols > 0 ? chosen.array<float>(pairs) : r.weights;
  if (router_norm_.exists()) {
    r.normed = logits.view(dtype_, tokens, router_norm_.width());
    r.inv_rms = logits.array<float>(tokens);
  }
  r.begin = work.array<int32_t>(c_.count + 1);
  r.pair_of_row = work.array<int32_t>(pairs);
  r.row_of_pair = work.array<int32_t>(pairs);
  return r;
}

Experts::Rows Experts::carve_rows(Carver& work, int64_t tokens) const {
  const int64_t most = most_rows(tokens);
  Rows r{};
  r.x = work.view(dtype_, most, router_.in_width());
  r.gate_up = work.view(dtype_, most, parts_of(c_.gate.activation) * c_.ff);
  r.act = work.view(dtype_, most, c_.ff);
  r.adapters = carve_adapters(work, tokens);
  return r;
}

std::byte* Experts::carve_adapters(Carver& carver, int64_t tokens) const {
  if (!adapted_) return nullptr;
  int64_t most = 0;
  for (const ExpertLinear* linear : {&groups_.front().gate_up, &groups_.front().down})
    most = std::max(most, linear->adapter_bytes(most_rows(tokens), dtype_));
  return carver.array<std::byte>(most);
}

std::unique_ptr<Channel::Work> Experts::carve(const Space& space) const {
  const int64_t tokens = space.tokens, hidden = router_.in_width();
  Carver& group = in_parts() ? space.part : space.work;  // the first part's scratch is free by then
  auto w = std::make_unique<Work>();
  w->routing = carve_routing(space.made, space.backward ? space.kept : space.made, space.at(everything), tokens);
  w->rows = carve_rows(group, tokens);
  if (in_parts()) w->rows.sum = space.made.view(DType::f32, tokens, hidden);
  w->grad_rows = group.view(dtype_, most_rows(tokens), hidden);
  w->grad_act = w->rows.act;
  w->grad_weights = space.made.array<float>(tokens * c_.chosen);
  w->grad_logits = space.work.view(dtype_, tokens, c_.count);
  if (router_norm_.exists()) w->grad_routed = space.work.view(dtype_, tokens, hidden);
  return w;
}

ExpertRows Experts::rows_of(const Group& group, const Routing& routing, int64_t tokens) const {
  return {.begin = routing.begin + group.first,
          .experts = group.count,
          .most = tokens * std::min(group.count, c_.chosen),
          .expected = tokens * c_.chosen * group.count / c_.count};
}

View Experts::router_input(const Binding& at, const Routing& routing, const View& x, const View& stream) const {
  if (!router_norm_.exists()) return x;
  router_norm_.forward(at, stream, routing.normed, routing.inv_rms);
  return routing.normed;
}

void Experts::route(const Binding& at, const Routing& routing, std::byte* buffers) const {
  at.ops.route(at.stream, {.logits = routing.logits,
                           .choice_bias = choice_bias_.weight(buffers),
                           .score = c_.score,
                           .groups = c_.groups,
                           .kept_groups = c_.kept_groups,
                           .scale = static_cast<float>(c_.weight_scale),
                           .choices = c_.chosen,
                           .experts = routing.experts,
                           .weights = routing.shares});
  if (factors_.cols == 0) return;
  at.ops.scale_choices(at.stream, {.experts = routing.experts,
                                   .shares = routing.shares,
                                   .pairs = routing.logits.rows * c_.chosen,
                                   .factors = factors_.weight(at.weights),
                                   .weights = routing.weights});
}

void Experts::count(const Binding& at, const Routing& routing, const Call& call) const {
  if (!call.router_counts) return;
  const RouterCounts to = RouterCounts::within(call.router_counts, c_.count, c_.chosen);
  at.ops.count_experts(at.stream, {.experts = routing.experts,
                                   .counted = call.micro_batch.counted,
                                   .logits = routing.logits,
                                   .choices = c_.chosen,
                                   .choice_counts = to.choice_counts,
                                   .probability = to.probability,
                                   .squared_lse = to.squared_lse,
                                   .tokens = to.tokens});
}

void Experts::sort(const Binding& at, const Routing& routing, int64_t tokens) const {
  at.ops.sort_by_expert(at.stream, {.experts = routing.experts,
                                    .pairs = tokens * c_.chosen,
                                    .count = c_.count,
                                    .begin = routing.begin,
                                    .pair_of_row = routing.pair_of_row,
                                    .row_of_pair = routing.row_of_pair});
}

void Experts::gather(const Binding& at, const ExpertRows& rows, const Routing& routing, const View& from,
                     const View& to) const {
  at.ops.gather_rows(at.stream,
                     {.x = from, .pair_of_row = routing.pair_of_row, .choices = c_.chosen, .rows = rows, .out = to});
}

// Adds the outputs of a group's experts to a sum that starts with `residual` and ends in y. y may alias `residual`.
void Experts::group_forward(const Binding& record, size_t index, const View& x, const View& residual, const View& y,
                            const Work& w) const {
  Binding own = record;
  own.adapter.scratch = w.rows.adapters;
  const Group& group = groups_[index];
  const Routing& routing = w.routing;
  const ExpertRows rows = rows_of(group, routing, x.rows);
  gather(own, rows, routing, x, w.rows.x);
  group.gate_up.forward(own, rows, w.rows.x, w.rows.gate_up);
  own.ops.experts_gated(own.stream, {.rows = rows, .gate_up = w.rows.gate_up, .out = w.rows.act, .gate = c_.gate});
  group.down.forward(own, rows, w.rows.act, w.rows.x);
  own.ops.combine_rows(own.stream, {.experts = routing.experts,
                                    .row_of_pair = routing.row_of_pair,
                                    .weights = routing.weights,
                                    .choices = c_.chosen,
                                    .first_expert = group.first,
                                    .rows = rows,
                                    .x = w.rows.x,
                                    .from = index == 0 ? residual : w.rows.sum,
                                    .out = index + 1 == groups_.size() ? y : w.rows.sum});
}

void Experts::forward(const Binding& at, const Call& call, const View& x, const View& residual, const View& y,
                      bool /*again*/) const {
  const Work& w = static_cast<const Work&>(call.work);
  router_.forward(at, router_input(at, w.routing, x, call.stream), {}, w.routing.logits);
  route(at, w.routing, call.buffers);
  count(at, w.routing, call);
  sort(at, w.routing, x.rows);
  if (!in_parts()) forward_own(call, 0, x, residual, y);
}

void Experts::forward_own(const Call& call, int64_t own, const View& x, const View& residual, const View& y) const {
  group_forward(call.own, static_cast<size_t>(own), x, residual, y, static_cast<const Work&>(call.work));
}

void Experts::recompute(const Binding& at, const Call& call, const View& x) const {
  const Work& w = static_cast<const Work&>(call.work);
  if (call.keep < everything) router_.forward(at, router_input(at, w.routing, x, call.stream), {}, w.routing.logits);
  sort(at, w.routing, x.rows);
}

void Experts::recompute_output(const Binding&, const Call& call, const View& x, const View& residual,
                               const View& y) const {
  ensure(!in_parts(), "experts of several records have no post-norm");
  forward_own(call, 0, x, residual, y);
}

// Backpropagates through the router. The groups have already written the experts' part of grad_x.
void Experts::backward(const Binding& at, const Call& call, const View& x, const View& grad_y, const View& grad_x,
                       bool /*output_made*/, bool add) const {
  ensure(!add, "experts are the last of a block's channels");
  if (!in_parts()) backward_own(call, 0, x, grad_y, grad_x);
  router_backward(at, call, x, grad_x);
}

void Experts::router_backward(const Binding& at, const Call& call, const View& x, const View& grad_x) const {
  const Work& w = static_cast<const Work&>(call.work);
  if (factors_.cols > 0)
    at.ops.scale_choices_backward(at.stream, {.begin = w.routing.begin,
                                              .pair_of_row = w.routing.pair_of_row,
                                              .shares = w.routing.shares,
                                              .factors = factors_.weight(at.weights),
                                              .grad_weights = w.grad_weights,
                                              .grad_factors = factors_.gradient(at.gradients),
                                              .accumulate = at.accumulate});
  at.ops.route_backward(at.stream, {.logits = w.routing.logits,
                                    .score = c_.score,
                                    .scale = static_cast<float>(c_.weight_scale),
                                    .choices = c_.chosen,
                                    .experts = w.routing.experts,
                                    .grad_weights = w.grad_weights,
                                    .grad_probability = call.router.probability,
                                    .grad_squared_lse = call.router.squared_lse,
                                    .counted = call.micro_batch.counted,
                                    .grad_logits = w.grad_logits});
  if (!router_norm_.exists()) {
    router_.backward_weight(at, w.grad_logits, x);
    router_.backward_input(at, w.grad_logits, grad_x, true);
    return;
  }
  router_.backward_weight(at, w.grad_logits, w.routing.normed);
  router_.backward_input(at, w.grad_logits, w.grad_routed);
  router_norm_.backward(at, {.x = call.stream,
                             .inv_rms = w.routing.inv_rms,
                             .grad_out = w.grad_routed,
                             .residual = call.grad_stream,
                             .grad_x = call.grad_stream});
}

// Computes the gradients of a group's weights and of its pairs' routing weights, and adds its part of dL/dx.
void Experts::backward_own(const Call& call, int64_t index, const View& x, const View& grad_y,
                           const View& grad_x) const {
  const Work& w = static_cast<const Work&>(call.work);
  Binding own = call.own;
  own.adapter.scratch = w.rows.adapters;
  const Group& group = groups_[static_cast<size_t>(index)];
  const Routing& routing = w.routing;
  const ExpertRows rows = rows_of(group, routing, grad_y.rows);
  gather(own, rows, routing, x, w.rows.x);
  group.gate_up.forward(own, rows, w.rows.x, w.rows.gate_up);
  gather(own, rows, routing, grad_y, w.grad_rows);
  group.down.backward_input(own, rows, w.grad_rows, w.grad_act);
  own.ops.experts_gated_backward(own.stream, {.rows = rows,
                                              .pair_of_row = routing.pair_of_row,
                                              .weights = routing.weights,
                                              .gate_up = w.rows.gate_up,
                                              .grad_act = w.grad_act,
                                              .grad_y = w.grad_rows,
                                              .bias = group.down.biases(own.weights),
                                              .gate = c_.gate,
                                              .grad_weights = w.grad_weights});
  if (own.gradients || own.adapter.gradients) {
    // The gradient of the bias sums weighted rows of dL/dy. For the matrix, the activations already have the routing
    // weights in them, so the rows are unweighted.
    if (group.down.has_bias()) {
      group.down.backward_weight(own, rows, w.grad_rows, w.grad_act, ExpertLinear::Parts::bias);
      gather(own, rows, routing, grad_y, w.grad_rows);
    }
    group.down.backward_weight(own, rows, w.grad_rows, w.grad_act, ExpertLinear::Parts::weight);
    group.gate_up.backward_weight(own, rows, w.rows.gate_up, w.rows.x);
  }
  group.gate_up.backward_input(own, rows, w.rows.gate_up, w.grad_rows);
  own.ops.combine_rows(own.stream, {.experts = routing.experts,
                                    .row_of_pair = routing.row_of_pair,
                                    .choices = c_.chosen,
                                    .first_expert = group.first,
                                    .rows = rows,
                                    .x = w.grad_rows,
                                    .descending = true,
                                    .from = index + 1 == own_records() ? View{} : w.rows.sum,
                                    .out = index == 0 ? grad_x : w.rows.sum});
}

std::unique_ptr<Channel::Work> Experts::carve_decode(Carver& carver, int64_t tokens) const {
  auto w = std::make_unique<Work>();
  w->routing = carve_routing(carver, carver, carver, tokens);
  w->rows = carve_rows(carver, tokens);
  if (in_parts()) w->rows.sum = carver.view(DType::f32, tokens, router_.in_width());
  return w;
}

// With at least twice as many choices as experts, nearly every expert is chosen by some token, so all are fetched.
bool Experts::decode_chooses(int64_t tokens) const { return tokens * c_.chosen < 2 * c_.count; }

// Fetches only the experts that have rows.
void Experts::fetch_chosen(Stream& stream, const Decode& a, const Routing& routing) const {
  std::vector<int32_t> begin(static_cast<size_t>(c_.count + 1));
  stream.copy(begin.data(), routing.begin, begin.size() * sizeof(int32_t));
  stream.synchronize();
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    const int64_t element = dtype_bytes(dtype_), bytes = group.elements * element;
    const int64_t stride = group.count > 1 ? group.gate_up.stride() * element : bytes;
    std::vector<Phase::ByteRange> wanted;
    for (int64_t expert = 0; expert < group.count; ++expert) {
      const size_t at = static_cast<size_t>(group.first + expert);
      if (begin[at + 1] == begin[at]) continue;
      const int64_t from = expert * stride, count = std::min(stride, bytes - from);
      if (!wanted.empty() && wanted.back().begin + wanted.back().bytes == from)
        wanted.back().bytes += count;
      else
        wanted.push_back({from, count});
    }
    a.fetch(static_cast<int64_t>(i), wanted);
  }
}

void Experts::decode(const Binding& at, const Decode& a) const {
  const Work& w = static_cast<const Work&>(a.work);
  router_.forward(at, router_input(at, w.routing, a.x, a.stream), {}, w.routing.logits);
  route(at, w.routing, a.buffers);
  sort(at, w.routing, a.x.rows);
  if (a.fetch) fetch_chosen(at.stream, a, w.routing);
  for (size_t i = 0; i < groups_.size(); ++i) {
    Binding own{at.ops, at.stream, a.own[i]};
    if (adapted_) own.adapter.weights = a.adapters[i];
    group_forward(own, i, a.x, a.residual, a.y, w);
  }
}

}  // namespace megatrain
