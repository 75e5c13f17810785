#include "megatrain/ops/note_memory.h"

#include <algorithm>
#include <numeric>

#include "megatrain/base/math.h"
#include "megatrain/base/rng.h"

namespace megatrain {

namespace {

constexpr int64_t kAlignment = 256;
constexpr uint64_t kPurpose = 0x6e6f746573;  // "notes"

// Assigns every operand of a call an address after `base`. Without a base it only counts bytes.
class Placer {
 public:
  Placer(std::byte* base, Stream& stream, std::vector<int32_t>& document_begin)
      : base_(base), stream_(stream), document_begin_(document_begin) {}

  int64_t bytes() const { return offset_; }

  void operator()(LinearForward& a) { place(a.x, a.weight, a.bias, a.residual, a.out); }
  void operator()(LinearBackwardInput& a) { place(a.grad_out, a.weight, a.grad_x); }
  void operator()(LinearBackwardWeight& a) { place(a.grad_out, a.x, a.grad_weight, a.grad_bias); }
  void operator()(AttentionForward& a) {
    place(a.q, a.k, a.v, a.sinks, a.out);
    a.lse = floats(a.shape.heads * a.shape.tokens);
    documents(a.shape.tokens, a.documents);
  }
  void operator()(AttentionBackward& a) {
    place(a.q, a.k, a.v, a.sinks, a.out, a.grad_out, a.grad_q, a.grad_k, a.grad_v, a.grad_sinks);
    a.lse = floats(a.shape.heads * a.shape.tokens);
    documents(a.shape.tokens, a.documents);
  }
  void operator()(RmsNormForward& a) {
    place(a.x, a.weight, a.residual, a.out);
    a.inv_rms = floats(a.x.rows * a.groups);
  }
  void operator()(RmsNormBackward& a) {
    place(a.x, a.weight, a.grad_out, a.residual, a.grad_x, a.grad_weight);
    a.inv_rms = floats(a.x.rows * a.groups);
  }
  void operator()(Rope& a) {
    place(a.x);
    a.positions = list(std::vector<int32_t>(static_cast<size_t>(a.x.rows), 0));
    a.cos = floats(a.rotary_dim / 2);
    a.sin = floats(a.rotary_dim / 2);
  }
  void operator()(ShortConvForward& a) {
    place(a.x, a.weight, a.bias, a.out);
    documents(a.x.rows, a.documents);
  }
  void operator()(ShortConvBackward& a) {
    place(a.x, a.weight, a.bias, a.grad_out, a.grad_x, a.grad_weight, a.grad_bias);
    documents(a.x.rows, a.documents);
  }
  void operator()(DeltaGatesForward& a) { place(a.a, a.b, a.a_log, a.dt_bias, a.g, a.beta); }
  void operator()(DeltaGatesBackward& a) {
    place(a.a, a.b, a.a_log, a.dt_bias, a.grad_g, a.grad_beta, a.grad_a, a.grad_b, a.grad_a_log, a.grad_dt_bias);
  }
  void operator()(DeltaRuleForward& a) {
    place(a.q, a.k, a.v, a.beta, a.out);
    gates(a.g);
    documents(a.shape.tokens, a.documents);
  }
  void operator()(DeltaRuleBackward& a) {
    place(a.q, a.k, a.v, a.beta, a.grad_out, a.grad_q, a.grad_k, a.grad_v, a.grad_g, a.grad_beta);
    gates(a.g);
    documents(a.shape.tokens, a.documents);
  }
  void operator()(SsdGatesForward& a) { place(a.dt, a.a_log, a.dt_bias, a.step, a.g); }
  void operator()(SsdGatesBackward& a) {
    place(a.dt, a.a_log, a.dt_bias, a.grad_step, a.grad_g, a.grad_dt, a.grad_a_log, a.grad_dt_bias);
  }
  void operator()(SsdForward& a) {
    place(a.x, a.b, a.c, a.step, a.skip, a.out);
    gates(a.g);
    documents(a.shape.tokens, a.documents);
  }
  void operator()(SsdBackward& a) {
    place(a.x, a.b, a.c, a.step, a.skip, a.grad_out, a.grad_x, a.grad_b, a.grad_c, a.grad_step, a.grad_g, a.grad_skip);
    gates(a.g);
    documents(a.shape.tokens, a.documents);
  }
  void operator()(GatedNormForward& a) { place(a.x, a.z, a.weight, a.out); }
  void operator()(GatedNormBackward& a) { place(a.x, a.z, a.weight, a.grad_out, a.grad_x, a.grad_z, a.grad_weight); }
  void operator()(MoveHeads& a) { place(a.from, a.to); }
  void operator()(Dropout& a) { place(a.x, a.out); }
  void operator()(DoraFactors& a) { place(a.weight, a.a, a.b, a.magnitude, a.factors, a.inv_norms); }
  void operator()(ScaleColumns& a) { place(a.x, a.factors, a.times, a.bias, a.residual, a.out); }
  void operator()(GatedForward& a) { place(a.gate_up, a.row_gate, a.out); }
  void operator()(GatedBackward& a) {
    place(a.gate_up, a.row_gate, a.grad_out, a.grad_gate_up, a.grad_row_gate, a.out);
  }
  void operator()(ScaleAll& a) { place(a.x, a.factor, a.out); }
  void operator()(OutputGateForward& a) { place(a.x, a.gate, a.out); }
  void operator()(OutputGateBackward& a) { place(a.x, a.gate, a.grad_out, a.grad_x, a.grad_gate); }
  void operator()(Route& a) {
    place(a.logits, a.choice_bias);
    a.experts = numbers(a.logits.rows * a.choices);
    a.weights = floats(a.logits.rows * a.choices);
  }
  void operator()(RouteBackward& a) {
    place(a.logits, a.grad_probability, a.grad_logits);
    a.experts = choices(a.logits.rows * a.choices, a.choices);
    a.grad_weights = floats(a.logits.rows * a.choices);
    a.counted = all_count(a.counted, a.logits.rows);
  }
  void operator()(SortByExpert& a) {
    a.experts = choices(a.pairs, a.count);
    a.begin = numbers(a.count + 1);
    a.pair_of_row = numbers(a.pairs);
    a.row_of_pair = numbers(a.pairs);
  }
  void operator()(GatherRows& a) {
    place(a.x, a.out);
    rows(a.rows);
    std::vector<int32_t> pairs;
    for (int64_t row = 0; row < a.x.rows * a.choices; ++row) pairs.push_back(pair_at(row, a.x.rows, a.choices));
    a.pair_of_row = list(pairs);
  }
  void operator()(ExpertsForward& a) {
    place(a.x, a.out);
    rows(a.rows, a.weight, a.bias);
  }
  void operator()(ExpertsBackwardInput& a) {
    place(a.grad_out, a.grad_x);
    rows(a.rows, a.weight);
  }
  void operator()(ExpertsBackwardWeight& a) {
    place(a.grad_out, a.x);
    rows(a.rows, a.grad_weight, a.grad_bias);
  }
  void operator()(ExpertsGated& a) {
    place(a.gate_up, a.out);
    rows(a.rows);
  }
  void operator()(ExpertsGatedBackward& a) {
    place(a.gate_up, a.grad_act, a.grad_y);
    rows(a.rows, a.bias);
    std::vector<int32_t> pairs(static_cast<size_t>(a.rows.most));
    std::iota(pairs.begin(), pairs.end(), 0);
    a.pair_of_row = list(pairs);
    a.weights = floats(a.rows.most);
    a.grad_weights = floats(a.rows.most);
  }
  void operator()(CombineRows& a) {
    place(a.x, a.from, a.out);
    rows(a.rows);
    const int64_t pairs = a.out.rows * a.choices;
    const int64_t each = std::max<int64_t>(1, ceil_div(a.rows.expected, a.rows.experts));
    std::vector<int32_t> experts(static_cast<size_t>(pairs)), row_of_pair(static_cast<size_t>(pairs));
    for (int64_t row = 0; row < pairs; ++row) {
      const size_t pair = static_cast<size_t>(pair_at(row, a.out.rows, a.choices));
      row_of_pair[pair] = static_cast<int32_t>(row);
      experts[pair] = static_cast<int32_t>(a.first_expert + (row < a.rows.expected ? row / each : a.rows.experts));
    }
    a.experts = list(experts);
    a.row_of_pair = list(row_of_pair);
    if (a.weights) a.weights = floats(pairs);
  }
  void operator()(CountExperts& a) {
    place(a.logits);
    a.experts = choices(a.logits.rows * a.choices, a.choices);
    a.counted = all_count(a.counted, a.logits.rows);
    a.choice_counts = reinterpret_cast<int64_t*>(take(a.choices * a.logits.cols * 8));
    a.probability = reinterpret_cast<double*>(take(a.logits.cols * 8));
    a.squared_lse = reinterpret_cast<double*>(take(8));
    a.tokens = reinterpret_cast<int64_t*>(take(8));
  }
  void operator()(CrossEntropy& a) {
    place(a.logits);
    std::vector<int32_t> labels;
    for (int64_t t = 0; t < a.logits.rows; ++t) {
      labels.push_back(static_cast<int32_t>(
          random_below(1, kPurpose, static_cast<uint64_t>(t), static_cast<uint64_t>(a.logits.cols))));
    }
    a.labels = list(labels);
    a.loss = floats(a.logits.rows);
    a.correct = list(labels);
  }

 private:
  std::byte* take(int64_t bytes) {
    std::byte* piece = base_ ? base_ + offset_ : nullptr;
    offset_ += round_up(bytes, kAlignment);
    return piece;
  }

  template <class... Views>
  void place(Views&... views) {
    (place_one(views), ...);
  }
  void place_one(View& view) {
    if (view.empty()) return;
    const int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data) % kAlignment);
    std::byte* piece = take(misaligned + view.rows * std::max(view.row_stride, view.cols) * dtype_bytes(view.dtype));
    if (piece) view.data = piece + misaligned;
  }

  float* floats(int64_t count) { return reinterpret_cast<float*>(take(count * 4)); }

  int32_t* list(const std::vector<int32_t>& values) {
    std::byte* piece = take(static_cast<int64_t>(values.size() * sizeof(int32_t)));
    if (piece) {
      stream_.copy(piece, values.data(), values.size() * sizeof(int32_t));
      stream_.synchronize();
    }
    return reinterpret_cast<int32_t*>(piece);
  }

  int32_t* numbers(int64_t count) { return reinterpret_cast<int32_t*>(take(count * 4)); }

  // Experts by pair, each with the same number of pairs.
  int32_t* choices(int64_t pairs, int64_t experts) {
    std::vector<int32_t> values(static_cast<size_t>(pairs));
    for (size_t pair = 0; pair < values.size(); ++pair)
      values[pair] = static_cast<int32_t>(pair % static_cast<size_t>(experts));
    return list(values);
  }
  const int32_t* all_count(const int32_t* counted, int64_t tokens) {
    return counted ? list(std::vector<int32_t>(static_cast<size_t>(tokens), 1)) : nullptr;
  }

  // The pair of a row, if the rows are all tokens' first choices, then all tokens' second choices, and so on.
  static int32_t pair_at(int64_t row, int64_t tokens, int64_t choices) {
    return static_cast<int32_t>(row % tokens * choices + row / tokens);
  }

  // The expected rows, evenly distributed, and the experts' weights. Buffers start at the first expert's rows.
  template <class... Weights>
  void rows(ExpertRows& rows, Weights&... weights) {
    std::vector<int32_t> begin;
    for (int64_t i = 0; i <= rows.experts; ++i)
      begin.push_back(static_cast<int32_t>(i * std::min(rows.expected, rows.most) / rows.experts));
    (place_experts(rows, weights), ...);
    rows.begin = list(begin);
    rows.origin = nullptr;
  }
  void place_experts(const ExpertRows& rows, ExpertWeights& weights) {
    if (weights.empty()) return;
    View all = weights.first;
    all.rows = 1;
    all.cols = all.row_stride = (rows.experts - 1) * weights.stride + weights.first.elements();
    place_one(all);
    weights.first.data = all.data;
  }

  // A state of the delta rule or of Mamba 2 grows without bound if a logarithm of its decay is positive.
  void gates(View& g) {
    place_one(g);
    if (!base_) return;
    const std::vector<float> values(static_cast<size_t>(g.rows * std::max(g.row_stride, g.cols)), -0.1f);
    stream_.copy(g.data, values.data(), values.size() * sizeof(float));
    stream_.synchronize();
  }

  void documents(int64_t tokens, Documents& documents) {
    document_begin_.clear();
    for (int64_t d = 0; d <= documents.count; ++d)
      document_begin_.push_back(static_cast<int32_t>(std::min(d * documents.longest, tokens)));
    documents.begin = list(document_begin_);
    documents.host_begin = document_begin_.data();
  }

  std::byte* base_;
  Stream& stream_;
  std::vector<int32_t>& document_begin_;
  int64_t offset_ = 0;
};

}  // namespace

NoteMemory::NoteMemory(Device& device, Stream& stream) : device_(device), stream_(stream), pattern_(size_t{1} << 20) {
  for (size_t i = 0; i < pattern_.size(); ++i)
    pattern_[i] = to_bf16(static_cast<float>(random_uniform(1, kPurpose, i) - 0.5));
}

// Copies the pattern once, then repeatedly doubles what is filled.
void NoteMemory::fill(int64_t bytes) {
  int64_t filled = std::min(bytes, static_cast<int64_t>(pattern_.size() * sizeof(bf16)));
  stream_.copy(arena_.data(), pattern_.data(), static_cast<size_t>(filled));
  while (filled < bytes) {
    const int64_t more = std::min(filled, bytes - filled);
    stream_.copy(arena_.data() + filled, arena_.data(), static_cast<size_t>(more));
    filled += more;
  }
}

OpNote NoteMemory::place(const OpNote& note) {
  OpNote placed = note;
  Placer count(nullptr, stream_, document_begin_);
  std::visit(count, placed);
  if (static_cast<int64_t>(arena_.bytes()) < count.bytes()) {
    arena_ = Buffer();  // freed first, so that both never exist at once
    arena_ = device_.allocate(static_cast<size_t>(count.bytes()), "timed calls");
  }
  fill(count.bytes());
  placed = note;
  Placer placer(arena_.data(), stream_, document_begin_);
  std::visit(placer, placed);
  stream_.synchronize();
  return placed;
}

}  // namespace megatrain
