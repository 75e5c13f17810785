#include "megatrain/model/expert_block.h"

#include <algorithm>

#include "megatrain/base/error.h"

namespace megatrain {

namespace {

// One expert of a record as a layout of its own, with its places in the record.
LayerLayout one_expert(const LayerLayout& record, int64_t experts, int64_t expert) {
  const int64_t tensors = std::ssize(record.tensors) / experts;
  const auto begin = record.tensors.begin() + expert * tensors;
  LayerLayout one;
  one.tensors.assign(begin, begin + tensors);
  return one;
}

// Whether the experts of a run go on with this one: the same parts are trained, at the run's distance.
bool goes_on(const ExpertLinear::Gradients& run, const LinearGradient& next, int64_t expert) {
  if (run.first + run.count != expert || run.begin != next.begin || run.rows != next.rows) return false;
  const auto fits = [&](int64_t first, int64_t offset) {
    if (first < 0 || offset < 0) return first == offset;
    return run.count == 1 || offset == first + run.count * run.stride;
  };
  return fits(run.weight, next.weight) && fits(run.bias, next.bias);
}

}  // namespace

ExpertLinear find_expert_linear(const LayerLayout& record, int64_t experts, int weight, int bias) {
  ExpertLinear found;
  std::vector<ExpertLinear::Gradients> open;  // runs that the expert before belongs to
  for (int64_t expert = 0; expert < experts; ++expert) {
    const LinearOperands one = find_linear(one_expert(record, experts, expert), weight, bias);
    if (expert == 0) {
      found.weight = one.weight;
      found.bias = one.bias;
    } else {
      const int64_t stride = (one.weight.offset - found.weight.offset) / expert;
      ensure(one.weight.offset == found.weight.offset + expert * stride &&
                 (one.bias.offset < 0 || one.bias.offset == found.bias.offset + expert * stride) &&
                 (expert == 1 || stride == found.stride),
             "the experts of a record lie at equal distances");
      found.stride = stride;
    }
    std::vector<ExpertLinear::Gradients> now;
    for (const LinearGradient& part : one.gradients) {
      if (part.weight < 0 && part.bias < 0) continue;
      const auto run = std::find_if(open.begin(), open.end(), [&](const auto& r) { return goes_on(r, part, expert); });
      if (run == open.end()) {
        now.push_back({expert, 1, part.begin, part.rows, part.weight, part.bias, 0});
        continue;
      }
      ExpertLinear::Gradients longer = *run;
      if (longer.count == 1) longer.stride = part.weight >= 0 ? part.weight - run->weight : part.bias - run->bias;
      ++longer.count;
      now.push_back(longer);
      open.erase(run);
    }
    found.gradients.insert(found.gradients.end(), open.begin(), open.end());
    open = std::move(now);
  }
  found.gradients.insert(found.gradients.end(), open.begin(), open.end());
  return found;
}

struct ExpertBlock::Routing {
  View logits;           // (T, E) fp32
  int32_t* experts;      // (T * k) by pair
  float* weights;        // (T * k) by pair
  int32_t* begin;        // (E + 1)
  int32_t* pair_of_row;  // (T * k)
  int32_t* row_of_pair;  // (T * k)
};

struct ExpertBlock::Rows {
  View x;        // (R, H) of norm(h); in forward then the down products
  View gate_up;  // (R, 2F)
  View act;      // (R, F)
  View sum;      // (T, H) fp32 of the groups so far, where there are several
};

struct ExpertBlock::Work {
  AttentionHalf::Work attention;
  View post_normed;     // (T, H)
  float* post_inv_rms;  // (T)
  Routing routing;
  Rows rows;
  View grad_rows;         // (R, H) of dL/dy, then of dL/d norm(h)
  View grad_act;          // (R, F)
  float* grad_weights;    // (T * k) by pair
  View grad_post_normed;  // (T, H)
  View grad_logits;       // (T, E)
  int64_t workspace_bytes, carried_bytes, kept_bytes;
};

ExpertBlock::ExpertBlock(const ExpertBlockShape& shape, std::span<const LayerLayout> records)
    : s_(shape),
      attention_(shape.attention, records.front()),
      post_norm_(find_operand(records.front(), BlockOperand::post_norm)),
      router_(find_linear(records.front(), ExpertOperand::router, ExpertOperand::router_bias)) {
  int64_t tensors = 0;  // of all experts
  for (const LayerLayout& record : records.subspan(1)) tensors += std::ssize(record.tensors);
  int64_t first = 0;
  for (const LayerLayout& record : records.subspan(1)) {
    const int64_t count = std::ssize(record.tensors) * s_.experts.count / tensors;
    groups_.push_back({first, count, record.elements,
                       find_expert_linear(record, count, ExpertOperand::gate_up, ExpertOperand::gate_up_bias),
                       find_expert_linear(record, count, ExpertOperand::down, ExpertOperand::down_bias)});
    first += count;
  }
  ensure(first == s_.experts.count, "the records hold all experts of the layer");
}

std::vector<int64_t> ExpertBlock::records() const {
  std::vector<int64_t> list;
  for (int64_t r = 0; r <= std::ssize(groups_); ++r) list.push_back(r);
  return list;
}

std::vector<std::vector<int64_t>> ExpertBlock::parts() const {
  if (!in_parts()) return {records()};
  std::vector<std::vector<int64_t>> list;
  for (const int64_t record : records()) list.push_back({record});
  return list;
}

int64_t ExpertBlock::workspace_bytes() const {
  return carve(nullptr, nullptr, Keep::nothing, nullptr, false).workspace_bytes;
}
int64_t ExpertBlock::carried_bytes() const {
  return carve(nullptr, nullptr, Keep::nothing, nullptr, false).carried_bytes;
}
int64_t ExpertBlock::kept_bytes(Keep keep) const { return carve(nullptr, nullptr, keep, nullptr, true).kept_bytes; }

// Rows that the largest group has at most: a token chooses an expert once.
int64_t ExpertBlock::most_rows(int64_t tokens) const {
  int64_t most = 0;
  for (const Group& group : groups_) most = std::max(most, tokens * std::min(group.count, s_.experts.chosen));
  return most;
}

ExpertBlock::Routing ExpertBlock::carve_routing(Carver& work, Carver& chosen, Carver& logits, int64_t tokens) const {
  const int64_t pairs = tokens * s_.experts.chosen;
  Routing r{};
  r.logits = logits.view(DType::f32, tokens, s_.experts.count);
  r.experts = chosen.array<int32_t>(pairs);
  r.weights = chosen.array<float>(pairs);
  r.begin = work.array<int32_t>(s_.experts.count + 1);
  r.pair_of_row = work.array<int32_t>(pairs);
  r.row_of_pair = work.array<int32_t>(pairs);
  return r;
}

ExpertBlock::Rows ExpertBlock::carve_rows(Carver& work, int64_t tokens) const {
  const DType dtype = s_.attention.dtype;
  const int64_t most = most_rows(tokens);
  Rows r{};
  r.x = work.view(dtype, most, s_.attention.hidden);
  r.gate_up = work.view(dtype, most, 2 * s_.ff());
  r.act = work.view(dtype, most, s_.ff());
  return r;
}

// `kept_choice`: the router's choice is among what is kept, as it is wherever a backward follows.
ExpertBlock::Work ExpertBlock::carve(std::byte* workspace, std::byte* carried, Keep keep, std::byte* kept,
                                     bool kept_choice) const {
  Carver first(workspace), others(workspace), carrying(carried), keeping(kept);
  Carver& across = in_parts() ? carrying : first;  // what parts hand on
  Carver& group = in_parts() ? others : first;     // a group's own: the first part's is not needed then
  Carver& whole = keep >= Keep::everything ? keeping : across;
  const DType dtype = s_.attention.dtype;
  const int64_t tokens = s_.attention.tokens, hidden = s_.attention.hidden;
  Work w{};
  w.attention = attention_.carve(first, across, keeping, keep, true, false);
  w.post_normed = whole.view(dtype, tokens, hidden);
  w.post_inv_rms = whole.array<float>(tokens);
  w.routing = carve_routing(across, kept_choice ? keeping : across, whole, tokens);
  w.rows = carve_rows(group, tokens);
  if (in_parts()) w.rows.sum = across.view(DType::f32, tokens, hidden);
  w.grad_rows = group.view(dtype, most_rows(tokens), hidden);
  w.grad_act = w.rows.act;
  w.grad_weights = across.array<float>(tokens * s_.experts.chosen);
  w.grad_post_normed =
      !in_parts() && s_.attention.chunk == tokens ? w.attention.grad_normed : across.view(dtype, tokens, hidden);
  w.grad_logits = first.view(dtype, tokens, s_.experts.count);
  w.workspace_bytes = std::max(first.bytes(), others.bytes());
  w.carried_bytes = carrying.bytes();
  w.kept_bytes = keeping.bytes();
  return w;
}

ExpertRows ExpertBlock::rows_of(const Group& group, const Routing& routing, int64_t tokens) const {
  return {.begin = routing.begin + group.first,
          .experts = group.count,
          .most = tokens * std::min(group.count, s_.experts.chosen),
          .expected = tokens * s_.experts.chosen * group.count / s_.experts.count};
}

void ExpertBlock::project_out(Ops& ops, Stream& stream, std::byte* slab, const View& x,
                              const AttentionHalf::Work& w) const {
  for (const TokenRange& range : s_.attention.ranges()) attention_.project_out(ops, stream, slab, x, w, range);
}

void ExpertBlock::logits_of(Ops& ops, Stream& stream, std::byte* slab, const View& normed,
                            const Routing& routing) const {
  project(ops, stream, slab, router_, normed, {}, routing.logits);
}

void ExpertBlock::route(Ops& ops, Stream& stream, const Routing& routing) const {
  ops.route(stream, {.logits = routing.logits,
                     .score = s_.experts.score,
                     .choices = s_.experts.chosen,
                     .experts = routing.experts,
                     .weights = routing.weights});
}

void ExpertBlock::count(Ops& ops, Stream& stream, const Routing& routing, const Forward& a) const {
  if (!a.router_counts) return;
  const RouterCounts to = RouterCounts::within(a.router_counts, s_.experts.count, s_.experts.chosen);
  ops.count_experts(stream, {.experts = routing.experts,
                             .counted = a.micro_batch.counted,
                             .logits = routing.logits,
                             .choices = s_.experts.chosen,
                             .choice_counts = to.choice_counts,
                             .probability = to.probability,
                             .squared_lse = to.squared_lse,
                             .tokens = to.tokens});
}

void ExpertBlock::sort(Ops& ops, Stream& stream, const Routing& routing, int64_t tokens) const {
  ops.sort_by_expert(stream, {.experts = routing.experts,
                              .pairs = tokens * s_.experts.chosen,
                              .count = s_.experts.count,
                              .begin = routing.begin,
                              .pair_of_row = routing.pair_of_row,
                              .row_of_pair = routing.row_of_pair});
}

// Adds what a group's experts make of `normed` to the sum, which begins with h and ends in y; y may be h.
void ExpertBlock::group_forward(Ops& ops, Stream& stream, std::byte* slab, size_t index, const View& normed,
                                const View& h, const View& y, const Routing& routing, const Rows& buffers) const {
  const Group& group = groups_[index];
  const ExpertRows rows = rows_of(group, routing, normed.rows);
  ops.gather_rows(
      stream,
      {.x = normed, .pair_of_row = routing.pair_of_row, .choices = s_.experts.chosen, .rows = rows, .out = buffers.x});
  ops.experts_forward(stream, {.rows = rows,
                               .x = buffers.x,
                               .weight = group.gate_up.weights(slab),
                               .bias = group.gate_up.biases(slab),
                               .out = buffers.gate_up});
  ops.experts_gated(stream, {.rows = rows, .gate_up = buffers.gate_up, .out = buffers.act, .gate = s_.experts.gate});
  ops.experts_forward(stream, {.rows = rows,
                               .x = buffers.act,
                               .weight = group.down.weights(slab),
                               .bias = group.down.biases(slab),
                               .out = buffers.x});
  ops.combine_rows(stream, {.experts = routing.experts,
                            .row_of_pair = routing.row_of_pair,
                            .weights = routing.weights,
                            .choices = s_.experts.chosen,
                            .first_expert = group.first,
                            .rows = rows,
                            .x = buffers.x,
                            .from = index == 0 ? h : buffers.sum,
                            .out = index + 1 == groups_.size() ? y : buffers.sum});
}

void ExpertBlock::forward(Ops& ops, Stream& stream, const Forward& a) const {
  const Work w = carve(a.workspace, a.carried, a.keep, a.kept, a.kept != nullptr);
  const auto group = [&](std::byte* slab, size_t index) {
    group_forward(ops, stream, slab, index, w.post_normed, w.attention.h.view, a.y, w.routing, w.rows);
  };
  if (a.part > 0) return group(a.weights.back(), static_cast<size_t>(a.part - 1));
  std::byte* slab = a.weights[0];
  const auto there = [&](Keep level) { return a.again && a.keep >= level; };
  if (!there(Keep::outputs)) attention_.mix(ops, stream, slab, a.x, a.micro_batch, a.tables, w.attention, true);
  if (!there(Keep::attention)) project_out(ops, stream, slab, a.x, w.attention);
  attention_.norm().forward(ops, stream, post_norm_.weight(slab), w.attention.h.view, w.post_normed, w.post_inv_rms);
  logits_of(ops, stream, slab, w.post_normed, w.routing);
  route(ops, stream, w.routing);
  count(ops, stream, w.routing, a);
  sort(ops, stream, w.routing, a.x.rows);
  if (!in_parts()) group(a.weights[1], 0);
}

void ExpertBlock::recompute(Ops& ops, Stream& stream, const Backward& a) const {
  std::byte* slab = a.weights[0];
  const Work w = carve(a.workspace, a.carried, a.keep, a.kept, true);
  if (a.keep < Keep::attention) {
    attention_.mix(ops, stream, slab, a.x, a.micro_batch, a.tables, w.attention, a.keep < Keep::outputs);
    project_out(ops, stream, slab, a.x, w.attention);
  }
  if (a.keep < Keep::everything) {
    attention_.norm().forward(ops, stream, post_norm_.weight(slab), w.attention.h.view, w.post_normed, w.post_inv_rms);
    logits_of(ops, stream, slab, w.post_normed, w.routing);
  }
  sort(ops, stream, w.routing, a.x.rows);
}

void ExpertBlock::backward(Ops& ops, Stream& stream, const Backward& a) const {
  const Work w = carve(a.workspace, a.carried, a.keep, a.kept, true);
  if (a.part > 0) return group_backward(ops, stream, a, w, static_cast<size_t>(a.part - 1));
  if (!in_parts()) {
    recompute(ops, stream, a);
    group_backward(ops, stream, a, w, 0);
  }
  first_backward(ops, stream, a, w);
}

// From the gradient of the router's weights and of norm(h) down to x.
void ExpertBlock::first_backward(Ops& ops, Stream& stream, const Backward& a, const Work& w) const {
  std::byte* slab = a.weights[0];
  float* grads = a.weight_grads[0];
  ops.route_backward(stream, {.logits = w.routing.logits,
                              .score = s_.experts.score,
                              .choices = s_.experts.chosen,
                              .experts = w.routing.experts,
                              .grad_weights = w.grad_weights,
                              .grad_probability = a.router.probability,
                              .grad_squared_lse = a.router.squared_lse,
                              .counted = a.micro_batch.counted,
                              .grad_logits = w.grad_logits});
  weight_gradients(ops, stream, grads, router_, w.grad_logits, w.post_normed, a.accumulate);
  ops.linear_backward_input(stream, {.grad_out = w.grad_logits,
                                     .weight = router_.weight.weight(slab),
                                     .grad_x = w.grad_post_normed,
                                     .accumulate = true});
  attention_.norm().backward(ops, stream,
                             {.x = w.attention.h.view,
                              .weight = post_norm_.weight(slab),
                              .inv_rms = w.post_inv_rms,
                              .grad_out = w.grad_post_normed,
                              .residual = a.grad_y,
                              .grad_x = a.grad_x,
                              .grad_weight = post_norm_.gradient(grads),
                              .accumulate = a.accumulate});
  for (const TokenRange& range : s_.attention.ranges())
    attention_.project_out_backward(ops, stream, a, w.attention, range);
  attention_.mix_backward(ops, stream, a, w.attention);
}

namespace {

enum class Parts : uint8_t { weight, bias, both };

void expert_gradients(Ops& ops, Stream& stream, float* grads, const ExpertLinear& linear, const ExpertRows& rows,
                      const View& grad_out, const View& x, bool accumulate, Parts parts = Parts::both) {
  for (const ExpertLinear::Gradients& run : linear.gradients) {
    const auto at = [&](Parts part, int64_t offset, int64_t count, int64_t cols) {
      const bool wanted = offset >= 0 && (parts == part || parts == Parts::both);
      return wanted ? ExpertWeights{matrix(grads + offset, DType::f32, count, cols), run.stride} : ExpertWeights{};
    };
    const ExpertWeights weight = at(Parts::weight, run.weight, run.rows, linear.weight.cols);
    const ExpertWeights bias = at(Parts::bias, run.bias, 1, run.rows);
    if (weight.empty() && bias.empty()) continue;
    ExpertRows some = rows;
    some.origin = rows.begin;
    some.begin += run.first;
    some.experts = run.count;
    some.expected = rows.expected * run.count / rows.experts;
    ops.experts_backward_weight(stream, {.rows = some,
                                         .grad_out = grad_out.slice_cols(run.begin, run.rows),
                                         .x = x,
                                         .grad_weight = weight,
                                         .grad_bias = bias,
                                         .accumulate = accumulate});
  }
}

}  // namespace

// The gradients of a group's weights, of its pairs' weights, and its part of dL/d norm(h).
void ExpertBlock::group_backward(Ops& ops, Stream& stream, const Backward& a, const Work& w, size_t index) const {
  const Group& group = groups_[index];
  std::byte* slab = a.weights.back();
  float* grads = a.weight_grads.back();
  const Routing& routing = w.routing;
  const ExpertRows rows = rows_of(group, routing, a.grad_y.rows);
  const auto gather = [&](const View& from, const View& to) {
    ops.gather_rows(
        stream, {.x = from, .pair_of_row = routing.pair_of_row, .choices = s_.experts.chosen, .rows = rows, .out = to});
  };
  gather(w.post_normed, w.rows.x);
  ops.experts_forward(stream, {.rows = rows,
                               .x = w.rows.x,
                               .weight = group.gate_up.weights(slab),
                               .bias = group.gate_up.biases(slab),
                               .out = w.rows.gate_up});
  gather(a.grad_y, w.grad_rows);
  ops.experts_backward_input(
      stream, {.rows = rows, .grad_out = w.grad_rows, .weight = group.down.weights(slab), .grad_x = w.grad_act});
  ops.experts_gated_backward(stream, {.rows = rows,
                                      .pair_of_row = routing.pair_of_row,
                                      .weights = routing.weights,
                                      .gate_up = w.rows.gate_up,
                                      .grad_act = w.grad_act,
                                      .grad_y = w.grad_rows,
                                      .bias = group.down.biases(slab),
                                      .gate = s_.experts.gate,
                                      .grad_weights = w.grad_weights});
  if (grads) {
    // the bias' gradient adds up weighted rows of dL/dy; that of the matrix has the weights in the activations
    if (group.down.bias.offset >= 0) {
      expert_gradients(ops, stream, grads, group.down, rows, w.grad_rows, w.grad_act, a.accumulate, Parts::bias);
      gather(a.grad_y, w.grad_rows);
    }
    expert_gradients(ops, stream, grads, group.down, rows, w.grad_rows, w.grad_act, a.accumulate, Parts::weight);
    expert_gradients(ops, stream, grads, group.gate_up, rows, w.rows.gate_up, w.rows.x, a.accumulate);
  }
  ops.experts_backward_input(
      stream, {.rows = rows, .grad_out = w.rows.gate_up, .weight = group.gate_up.weights(slab), .grad_x = w.grad_rows});
  ops.combine_rows(stream, {.experts = routing.experts,
                            .row_of_pair = routing.row_of_pair,
                            .choices = s_.experts.chosen,
                            .first_expert = group.first,
                            .rows = rows,
                            .x = w.grad_rows,
                            .descending = true,
                            .from = index + 1 == groups_.size() ? View{} : w.rows.sum,
                            .out = index == 0 ? w.grad_post_normed : w.rows.sum});
}

struct ExpertBlock::DecodeWork {
  AttentionHalf::DecodeWork attention;
  Routing routing;
  Rows rows;
  int64_t bytes;
};

ExpertBlock::DecodeWork ExpertBlock::carve_decode(std::byte* workspace, int64_t tokens) const {
  Carver carver(workspace);
  DecodeWork w{};
  w.attention = attention_.carve_decode(carver, tokens);
  w.routing = carve_routing(carver, carver, carver, tokens);
  w.rows = carve_rows(carver, tokens);
  if (in_parts()) w.rows.sum = carver.view(DType::f32, tokens, s_.attention.hidden);
  w.bytes = carver.bytes();
  return w;
}

int64_t ExpertBlock::decode_workspace_bytes(int64_t tokens) const { return carve_decode(nullptr, tokens).bytes; }

// From about twice as many choices as experts on, nearly all of these have some.
bool ExpertBlock::decode_chooses(int64_t record, int64_t tokens) const {
  return record > 0 && tokens * s_.experts.chosen < 2 * s_.experts.count;
}

// The experts that have rows.
void ExpertBlock::fetch_chosen(Stream& stream, const Decode& a, const Routing& routing) const {
  std::vector<int32_t> begin(static_cast<size_t>(s_.experts.count + 1));
  stream.copy(begin.data(), routing.begin, begin.size() * sizeof(int32_t));
  stream.synchronize();
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    const int64_t element = dtype_bytes(s_.attention.dtype), bytes = group.elements * element;
    const int64_t stride = group.count > 1 ? group.gate_up.stride * element : bytes;
    std::vector<ByteRange> wanted;
    for (int64_t expert = 0; expert < group.count; ++expert) {
      const size_t at = static_cast<size_t>(group.first + expert);
      if (begin[at + 1] == begin[at]) continue;
      const int64_t from = expert * stride, count = std::min(stride, bytes - from);
      if (!wanted.empty() && wanted.back().begin + wanted.back().bytes == from)
        wanted.back().bytes += count;
      else
        wanted.push_back({from, count});
    }
    a.fetch(static_cast<int64_t>(i) + 1, wanted);
  }
}

void ExpertBlock::decode(Ops& ops, Stream& stream, const Decode& a) const {
  std::byte* slab = a.weights[0];
  const DecodeWork w = carve_decode(a.workspace, a.tokens.tokens);
  const View normed = w.attention.normed;
  attention_.decode(ops, stream, a, w.attention);
  attention_.norm().forward(ops, stream, post_norm_.weight(slab), a.y, normed, w.attention.inv_rms);
  logits_of(ops, stream, slab, normed, w.routing);
  route(ops, stream, w.routing);
  sort(ops, stream, w.routing, a.tokens.tokens);
  if (a.fetch) fetch_chosen(stream, a, w.routing);
  for (size_t i = 0; i < groups_.size(); ++i)
    group_forward(ops, stream, a.weights[i + 1], i, normed, a.y, a.y, w.routing, w.rows);
}

std::vector<std::unique_ptr<const Phase>> expert_phases(const ModelConfig& config, const ModelShape& shape,
                                                        int64_t layer, std::span<const LayerLayout> records) {
  std::vector<std::unique_ptr<const Phase>> phases;
  phases.push_back(std::make_unique<ExpertBlock>(
      ExpertBlockShape{.attention = attention_half_shape(config, shape, layer), .experts = config.experts}, records));
  return phases;
}

}  // namespace megatrain
