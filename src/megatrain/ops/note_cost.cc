#include "megatrain/ops/note_cost.h"

#include <algorithm>

namespace megatrain {

namespace {

std::string number(int64_t value) { return std::to_string(value); }

// "8192x3584 bf16", with the stride if rows are not contiguous.
std::string shape(const View& view) {
  std::string text = number(view.rows) + "x" + number(view.cols) + " " + dtype_name(view.dtype);
  if (!view.contiguous()) text += " stride " + number(view.row_stride);
  return text;
}

std::string mark(bool given, const char* text) { return given ? text : ""; }

std::string name_of(Activation activation) {
  switch (activation) {
    case Activation::silu: return "swiglu";
    case Activation::gelu_tanh: return "geglu";
    case Activation::gelu_sigmoid: return "geglu by sigmoid";
    case Activation::relu_squared: return "squared relu";
  }
  return {};
}
std::string name_of(const Gate& gate) {
  return name_of(gate.activation) + mark(gate.limit > 0 || gate.up_offset != 0, ", limited");
}
std::string name_of(RouterScore score) {
  switch (score) {
    case RouterScore::softmax_of_chosen: return "softmax of chosen";
    case RouterScore::softmax_of_all: return "softmax of all";
    case RouterScore::sigmoid: return "sigmoid";
  }
  return {};
}

// "4096 rows of 32 experts"
std::string rows_text(const ExpertRows& rows) {
  return number(rows.expected) + " rows of " + number(rows.experts) + " experts";
}

std::string attention_text(const char* name, const AttentionShape& shape, const Documents& documents, const View& q,
                           const View& sinks) {
  std::string text = std::string(name) + " " + number(documents.count) + (documents.uniform ? " x " : " up to ") +
                     number(documents.longest) + ", " + number(shape.heads) + "/" + number(shape.kv_heads) +
                     " heads of " + number(shape.head_dim) + " " + dtype_name(q.dtype);
  if (shape.window > 0) text += ", window " + number(shape.window);
  return text + mark(shape.cap > 0, ", capped") + mark(!sinks.empty(), ", sinks");
}

// FLOPs of q k^T and p v. Documents of unequal length are counted as if all had the longest one's length.
double attention_flops(const AttentionShape& shape, const Documents& documents) {
  const double longest = static_cast<double>(documents.longest);
  const double window = shape.window > 0 ? std::min(static_cast<double>(shape.window), longest) : longest;
  const double pairs = window * (window + 1) / 2 + (longest - window) * window;
  return 4.0 * pairs * static_cast<double>(shape.tokens) / longest * static_cast<double>(shape.heads * shape.head_dim);
}

std::string ssd_text(const char* name, const SsdShape& shape, const Documents& documents, const View& x) {
  return std::string(name) + " " + number(documents.count) + (documents.uniform ? " x " : " up to ") +
         number(documents.longest) + ", " + number(shape.heads) + "/" + number(shape.groups) + " heads of " +
         number(shape.state_dim) + "/" + number(shape.head_dim) + " " + dtype_name(x.dtype);
}

std::string delta_text(const char* name, const DeltaRuleShape& shape, const Documents& documents, const View& q) {
  return std::string(name) + " " + number(documents.count) + (documents.uniform ? " x " : " up to ") +
         number(documents.longest) + ", " + number(shape.key_heads) + "/" + number(shape.value_heads) + " heads of " +
         number(shape.key_dim) + "/" + number(shape.value_dim) + " " + dtype_name(q.dtype);
}

struct Text {
  std::string operator()(const LinearForward& a) const {
    return "linear " + shape(a.x) + " by " + shape(a.weight) + mark(!a.bias.empty(), " + bias") +
           mark(!a.residual.empty(), " + residual") + mark(a.out.dtype != a.x.dtype, " to fp32");
  }
  std::string operator()(const LinearBackwardInput& a) const {
    return "linear grad input " + shape(a.grad_out) + " by " + shape(a.weight) + mark(a.accumulate, ", added") +
           mark(a.grad_x.dtype != a.grad_out.dtype, " to fp32");
  }
  std::string operator()(const LinearBackwardWeight& a) const {
    if (a.grad_weight.empty()) return "linear grad bias " + shape(a.grad_out) + mark(a.accumulate, ", added");
    return "linear grad weight " + shape(a.grad_out) + " by " + shape(a.x) + mark(!a.grad_bias.empty(), " and bias") +
           mark(a.accumulate, ", added");
  }
  std::string operator()(const AttentionForward& a) const {
    return attention_text("attention", a.shape, a.documents, a.q, a.sinks);
  }
  std::string operator()(const AttentionBackward& a) const {
    return attention_text("attention backward", a.shape, a.documents, a.q, a.sinks);
  }
  std::string operator()(const RmsNormForward& a) const {
    return "rmsnorm " + shape(a.x) + mark(a.groups > 1, " by head") + mark(!a.residual.empty(), " + residual");
  }
  std::string operator()(const RmsNormBackward& a) const {
    return "rmsnorm backward " + shape(a.x) + mark(a.groups > 1, " by head") +
           mark(!a.residual.empty(), " + residual") + mark(a.grad_weight.empty(), ", frozen") +
           mark(a.accumulate, ", added");
  }
  std::string operator()(const Rope& a) const {
    const std::string part = a.rotary_dim < a.head_dim ? " of " + number(a.rotary_dim) + "/" + number(a.head_dim) : "";
    return "rope " + shape(a.x) + part + mark(a.backward, " backward");
  }
  std::string operator()(const ShortConvForward& a) const {
    return "short conv " + shape(a.x) + " by " + number(a.weight.cols) + mark(!a.bias.empty(), " + bias");
  }
  std::string operator()(const ShortConvBackward& a) const {
    return "short conv backward " + shape(a.x) + " by " + number(a.weight.cols) + mark(!a.bias.empty(), " + bias") +
           mark(a.grad_weight.empty(), ", frozen") + mark(a.accumulate, ", added");
  }
  std::string operator()(const DeltaGatesForward& a) const { return "delta gates " + shape(a.a); }
  std::string operator()(const DeltaGatesBackward& a) const {
    return "delta gates backward " + shape(a.a) + mark(a.grad_a_log.empty() && a.grad_dt_bias.empty(), ", frozen") +
           mark(a.accumulate, ", added");
  }
  std::string operator()(const DeltaRuleForward& a) const {
    return delta_text("delta rule", a.shape, a.documents, a.q);
  }
  std::string operator()(const DeltaRuleBackward& a) const {
    return delta_text("delta rule backward", a.shape, a.documents, a.q);
  }
  std::string operator()(const SsdGatesForward& a) const { return "ssd gates " + shape(a.dt); }
  std::string operator()(const SsdGatesBackward& a) const {
    return "ssd gates backward " + shape(a.dt) + mark(a.grad_a_log.empty() && a.grad_dt_bias.empty(), ", frozen") +
           mark(a.accumulate, ", added");
  }
  std::string operator()(const SsdForward& a) const { return ssd_text("ssd", a.shape, a.documents, a.x); }
  std::string operator()(const SsdBackward& a) const {
    return ssd_text("ssd backward", a.shape, a.documents, a.x) + mark(a.grad_skip.empty(), ", frozen") +
           mark(a.accumulate, ", added");
  }
  std::string operator()(const GatedNormForward& a) const {
    return "gated norm " + shape(a.x) + " by " + number(a.group_size()) + mark(a.gate_first, ", gated first");
  }
  std::string operator()(const GatedNormBackward& a) const {
    return "gated norm backward " + shape(a.x) + " by " + number(a.group_size()) + mark(a.gate_first, ", gated first") +
           mark(a.grad_weight.empty(), ", frozen") + mark(a.accumulate, ", added");
  }
  std::string operator()(const MoveHeads& a) const {
    return "move " + number(a.from.rows) + "x" + number(a.heads) + "x" + number(a.width) + " " +
           dtype_name(a.from.dtype) + mark(a.from_step == 0, " from one head") + mark(a.to_step == 0, " to a sum");
  }
  std::string operator()(const Dropout& a) const { return "dropout " + shape(a.x) + mark(a.accumulate, ", added"); }
  std::string operator()(const DoraFactors& a) const {
    return "dora factors " + shape(a.weight) + ", rank " + number(a.a.rows);
  }
  std::string operator()(const ScaleColumns& a) const {
    return "scale columns " + shape(a.x) + mark(!a.times.empty(), " by elements") + mark(!a.bias.empty(), " + bias") +
           mark(!a.residual.empty(), " + residual");
  }
  std::string operator()(const GatedForward& a) const {
    return name_of(a.activation) + " " + shape(a.gate_up) + mark(!a.row_gate.empty(), " by row gates");
  }
  std::string operator()(const GatedBackward& a) const {
    return name_of(a.activation) + " backward " + shape(a.gate_up) + mark(!a.row_gate.empty(), " by row gates") +
           mark(!a.out.empty(), " and forward");
  }
  std::string operator()(const OutputGateForward& a) const { return "output gate " + shape(a.x); }
  std::string operator()(const OutputGateBackward& a) const { return "output gate backward " + shape(a.x); }
  std::string operator()(const ScaleAll& a) const { return "scale " + shape(a.x); }
  std::string operator()(const Route& a) const {
    return "route " + shape(a.logits) + " to " + number(a.choices) + ", " + name_of(a.score) +
           (a.groups > 1 ? ", " + number(a.kept_groups) + " of " + number(a.groups) + " groups" : "");
  }
  std::string operator()(const RouteBackward& a) const {
    return "route backward " + shape(a.logits) + " to " + number(a.choices) + ", " + name_of(a.score) +
           mark(!a.grad_probability.empty(), ", balanced");
  }
  std::string operator()(const SortByExpert& a) const {
    return "sort " + number(a.pairs) + " rows by " + number(a.count) + " experts";
  }
  std::string operator()(const GatherRows& a) const { return "gather " + rows_text(a.rows) + " from " + shape(a.x); }
  std::string operator()(const ExpertsForward& a) const {
    return "experts " + rows_text(a.rows) + " by " + shape(a.weight.first) + mark(!a.bias.empty(), " + bias") +
           mark(a.accumulate, ", added");
  }
  std::string operator()(const ExpertsBackwardInput& a) const {
    return "experts grad input " + rows_text(a.rows) + " by " + shape(a.weight.first) + mark(a.accumulate, ", added");
  }
  std::string operator()(const ExpertsBackwardWeight& a) const {
    if (a.grad_weight.empty()) return "experts grad bias " + rows_text(a.rows) + mark(a.accumulate, ", added");
    return "experts grad weight " + rows_text(a.rows) + " to " + shape(a.grad_weight.first) +
           mark(!a.grad_bias.empty(), " and bias") + mark(a.accumulate, ", added");
  }
  std::string operator()(const ExpertsGated& a) const {
    return name_of(a.gate) + " " + rows_text(a.rows) + " " + shape(a.gate_up);
  }
  std::string operator()(const ExpertsGatedBackward& a) const {
    return name_of(a.gate) + " backward " + rows_text(a.rows) + " " + shape(a.gate_up) +
           mark(!a.bias.empty(), " and bias");
  }
  std::string operator()(const CombineRows& a) const {
    return "combine " + rows_text(a.rows) + " to " + shape(a.out) +
           (a.from.empty() ? "" : " from " + std::string(dtype_name(a.from.dtype))) + mark(a.weights, ", weighted") +
           mark(a.descending, ", descending");
  }
  std::string operator()(const CountExperts& a) const {
    return "count experts " + shape(a.logits) + " to " + number(a.choices);
  }
  std::string operator()(const CrossEntropy& a) const {
    return "cross entropy " + shape(a.logits) + mark(a.backward, " with backward");
  }
};

double matmul(const View& view, int64_t by) {
  return 2.0 * static_cast<double>(view.rows) * static_cast<double>(view.cols) * static_cast<double>(by);
}

double matmul(const ExpertRows& rows, const ExpertWeights& weight) { return matmul(weight.first, rows.expected); }

struct Flops {
  double operator()(const LinearForward& a) const { return matmul(a.x, a.weight.rows); }
  double operator()(const LinearBackwardInput& a) const { return matmul(a.grad_out, a.weight.cols); }
  double operator()(const LinearBackwardWeight& a) const {
    return a.grad_weight.empty() ? 0 : matmul(a.grad_out, a.x.cols);
  }
  double operator()(const AttentionForward& a) const { return attention_flops(a.shape, a.documents); }
  double operator()(const AttentionBackward& a) const { return 2.5 * attention_flops(a.shape, a.documents); }
  double operator()(const ExpertsForward& a) const { return matmul(a.rows, a.weight); }
  double operator()(const ExpertsBackwardInput& a) const { return matmul(a.rows, a.weight); }
  double operator()(const ExpertsBackwardWeight& a) const {
    return a.grad_weight.empty() ? 0 : matmul(a.rows, a.grad_weight);
  }
  template <class Other>
  double operator()(const Other&) const {
    return 0;
  }
};

template <class... Views>
double sum(const Views&... views) {
  return (static_cast<double>(views.empty() ? 0 : views.bytes()) + ...);
}

// Matmuls of a chunk's pairs of tokens with keys and values, and of its state. The backward computes the forward again
// and twice as much for the gradients.
constexpr double kRecurrenceBackward = 3;

double chunk_flops(const DeltaRuleShape& shape) {
  const double keys = static_cast<double>(shape.key_dim), values = static_cast<double>(shape.value_dim);
  const double of_pairs = 2 * static_cast<double>(kDeltaChunk) * (3 * keys + 2 * values);
  return (of_pairs + 6 * keys * values) * static_cast<double>(shape.tokens * shape.value_heads);
}

double chunk_flops(const SsdShape& shape) {
  const double width = static_cast<double>(shape.head_dim), state = static_cast<double>(shape.state_dim);
  const double of_pairs = 2 * static_cast<double>(kSsdChunk) * (state + width);
  return (of_pairs + 4 * state * width) * static_cast<double>(shape.tokens * shape.heads);
}

struct RecurrenceFlops {
  double operator()(const DeltaRuleForward& a) const { return chunk_flops(a.shape); }
  double operator()(const DeltaRuleBackward& a) const { return kRecurrenceBackward * chunk_flops(a.shape); }
  double operator()(const SsdForward& a) const { return chunk_flops(a.shape); }
  double operator()(const SsdBackward& a) const { return kRecurrenceBackward * chunk_flops(a.shape); }
  template <class Other>
  double operator()(const Other&) const {
    return 0;
  }
};

// Bytes of the expected rows, and of the weights of all experts.
template <class... Views>
double sum_of_rows(const ExpertRows& rows, const Views&... views) {
  return static_cast<double>(rows.expected) *
         (static_cast<double>(views.empty() ? 0 : views.cols * dtype_bytes(views.dtype)) + ...);
}
template <class... Weights>
double sum_of_experts(const ExpertRows& rows, const Weights&... weights) {
  return static_cast<double>(rows.experts) * (sum(weights.first) + ...);
}
// Bytes of arrays with one entry per row or pair.
double lists(int64_t count, int64_t bytes_each) { return static_cast<double>(count * bytes_each); }

// fp32 numbers that the chunks of the delta rule keep in scratch, written and read, of which `states` a chunk have a
// state's size.
double delta_scratch(const DeltaRuleShape& shape, double keys, double values, double states) {
  const double dk = static_cast<double>(shape.key_dim), dv = static_cast<double>(shape.value_dim);
  const double of_head = keys * dk + values * dv + states * dk * dv / static_cast<double>(kDeltaChunk);
  return 4 * of_head * static_cast<double>(shape.tokens * shape.value_heads);
}

// The same of Mamba 2's recurrence: matrices of pairs beside states.
double ssd_scratch(const SsdShape& shape, double pairs, double states) {
  const double chunk = static_cast<double>(kSsdChunk);
  const double of_head = pairs * chunk + states * static_cast<double>(shape.state_dim * shape.head_dim) / chunk;
  return 4 * of_head * static_cast<double>(shape.tokens * shape.heads);
}

struct Bytes {
  double operator()(const LinearForward& a) const { return sum(a.x, a.weight, a.bias, a.residual, a.out); }
  double operator()(const LinearBackwardInput& a) const {
    return sum(a.grad_out, a.weight, a.grad_x) + (a.accumulate ? sum(a.grad_x) : 0);
  }
  double operator()(const LinearBackwardWeight& a) const {
    if (a.grad_weight.empty()) return sum(a.grad_out, a.grad_bias);
    return sum(a.grad_out, a.x, a.grad_weight, a.grad_bias) + (a.accumulate ? sum(a.grad_weight) : 0);
  }
  double operator()(const AttentionForward& a) const { return sum(a.q, a.k, a.v, a.out); }
  double operator()(const AttentionBackward& a) const {
    return sum(a.q, a.k, a.v, a.out, a.grad_out, a.grad_q, a.grad_k, a.grad_v);
  }
  double operator()(const RmsNormForward& a) const { return sum(a.x, a.weight, a.residual, a.out); }
  double operator()(const RmsNormBackward& a) const { return sum(a.x, a.weight, a.grad_out, a.residual, a.grad_x); }
  double operator()(const Rope& a) const {
    return 2 * sum(a.x) * static_cast<double>(a.rotary_dim) / static_cast<double>(a.head_dim);
  }
  double operator()(const ShortConvForward& a) const { return sum(a.x, a.weight, a.bias, a.out); }
  double operator()(const ShortConvBackward& a) const {
    return sum(a.x, a.weight, a.bias, a.grad_out, a.grad_x, a.grad_weight, a.grad_bias);
  }
  double operator()(const DeltaGatesForward& a) const { return sum(a.a, a.b, a.g, a.beta); }
  double operator()(const DeltaGatesBackward& a) const {
    return sum(a.a, a.b, a.grad_g, a.grad_beta, a.grad_a, a.grad_b);
  }
  double operator()(const DeltaRuleForward& a) const {
    return sum(a.q, a.k, a.v, a.g, a.beta, a.out) + delta_scratch(a.shape, 3, 4, 2);
  }
  double operator()(const DeltaRuleBackward& a) const {
    return sum(a.q, a.k, a.v, a.g, a.beta, a.grad_out, a.grad_q, a.grad_k, a.grad_v, a.grad_g, a.grad_beta) +
           delta_scratch(a.shape, 9, 8, 4);
  }
  double operator()(const SsdGatesForward& a) const { return sum(a.dt, a.step, a.g); }
  double operator()(const SsdGatesBackward& a) const { return sum(a.dt, a.grad_step, a.grad_g, a.grad_dt); }
  double operator()(const SsdForward& a) const {
    return sum(a.x, a.b, a.c, a.step, a.g, a.out) + ssd_scratch(a.shape, 0, 4);
  }
  double operator()(const SsdBackward& a) const {
    return 2 * sum(a.x, a.b, a.c, a.step, a.g) + sum(a.grad_out, a.grad_x, a.grad_b, a.grad_c, a.grad_step, a.grad_g) +
           ssd_scratch(a.shape, 3, 10);
  }
  double operator()(const GatedNormForward& a) const { return sum(a.x, a.z, a.weight, a.out); }
  double operator()(const GatedNormBackward& a) const {
    return sum(a.x, a.z, a.weight, a.grad_out, a.grad_x, a.grad_z);
  }
  double operator()(const MoveHeads& a) const {
    const double head = static_cast<double>(a.from.rows * a.width * dtype_bytes(a.from.dtype));
    const auto times = [&](int64_t step) { return step == 0 ? 1.0 : static_cast<double>(a.heads); };
    return head * (times(a.from_step) + times(a.to_step));
  }
  double operator()(const Dropout& a) const { return sum(a.x, a.out) + (a.accumulate ? sum(a.out) : 0); }
  double operator()(const DoraFactors& a) const { return sum(a.weight, a.a, a.b, a.magnitude, a.factors, a.inv_norms); }
  double operator()(const ScaleColumns& a) const { return sum(a.x, a.factors, a.times, a.bias, a.residual, a.out); }
  double operator()(const GatedForward& a) const { return sum(a.gate_up, a.row_gate, a.out); }
  double operator()(const GatedBackward& a) const {
    return sum(a.gate_up, a.row_gate, a.grad_out, a.grad_gate_up, a.grad_row_gate, a.out);
  }
  double operator()(const ScaleAll& a) const { return sum(a.x, a.out); }
  double operator()(const OutputGateForward& a) const { return sum(a.x, a.gate, a.out); }
  double operator()(const OutputGateBackward& a) const { return sum(a.x, a.gate, a.grad_out, a.grad_x, a.grad_gate); }
  double operator()(const Route& a) const { return sum(a.logits) + lists(a.logits.rows * a.choices, 8); }
  double operator()(const RouteBackward& a) const {
    return sum(a.logits, a.grad_logits) + lists(a.logits.rows * a.choices, 8);
  }
  double operator()(const SortByExpert& a) const { return lists(a.pairs, 12); }
  double operator()(const GatherRows& a) const { return sum_of_rows(a.rows, a.x, a.out); }
  double operator()(const ExpertsForward& a) const {
    return sum_of_rows(a.rows, a.x, a.out) + sum_of_experts(a.rows, a.weight, a.bias) +
           (a.accumulate ? sum_of_rows(a.rows, a.out) : 0);
  }
  double operator()(const ExpertsBackwardInput& a) const {
    return sum_of_rows(a.rows, a.grad_out, a.grad_x) + sum_of_experts(a.rows, a.weight) +
           (a.accumulate ? sum_of_rows(a.rows, a.grad_x) : 0);
  }
  double operator()(const ExpertsBackwardWeight& a) const {
    if (a.grad_weight.empty()) return sum_of_rows(a.rows, a.grad_out) + sum_of_experts(a.rows, a.grad_bias);
    return sum_of_rows(a.rows, a.grad_out, a.x) + sum_of_experts(a.rows, a.grad_weight, a.grad_bias) +
           (a.accumulate ? sum_of_experts(a.rows, a.grad_weight) : 0);
  }
  double operator()(const ExpertsGated& a) const { return sum_of_rows(a.rows, a.gate_up, a.out); }
  double operator()(const ExpertsGatedBackward& a) const {
    return 2 * sum_of_rows(a.rows, a.gate_up, a.grad_act) + (a.bias.empty() ? 0 : 2 * sum_of_rows(a.rows, a.grad_y));
  }
  double operator()(const CombineRows& a) const { return sum(a.from, a.out) + sum_of_rows(a.rows, a.x); }
  double operator()(const CountExperts& a) const { return sum(a.logits) + lists(a.logits.rows * a.choices, 4); }
  double operator()(const CrossEntropy& a) const { return (a.backward ? 2 : 1) * sum(a.logits); }
};

}  // namespace

std::string note_text(const OpNote& note) { return std::visit(Text{}, note); }
double note_flops(const OpNote& note) { return std::visit(Flops{}, note); }
double note_bytes(const OpNote& note) { return std::visit(Bytes{}, note); }
double recurrence_flops(const OpNote& note) { return std::visit(RecurrenceFlops{}, note); }

std::optional<int64_t> expert_count(const OpNote& note) {
  return std::visit(
      [](const auto& call) -> std::optional<int64_t> {
        if constexpr (requires { call.rows.experts; }) return call.rows.experts;
        return {};
      },
      note);
}

std::optional<int64_t> attention_length(const OpNote& note) {
  if (const auto* forward = std::get_if<AttentionForward>(&note)) return forward->documents.longest;
  if (const auto* backward = std::get_if<AttentionBackward>(&note)) return backward->documents.longest;
  return {};
}

}  // namespace megatrain
