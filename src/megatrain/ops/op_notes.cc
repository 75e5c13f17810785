#include "megatrain/ops/op_notes.h"

namespace megatrain {

namespace {

struct Caller {
  Ops& ops;
  Stream& stream;

  void operator()(const LinearForward& args) const { ops.linear_forward(stream, args); }
  void operator()(const LinearBackwardInput& args) const { ops.linear_backward_input(stream, args); }
  void operator()(const LinearBackwardWeight& args) const { ops.linear_backward_weight(stream, args); }
  void operator()(const AttentionForward& args) const { ops.attention_forward(stream, args); }
  void operator()(const AttentionBackward& args) const { ops.attention_backward(stream, args); }
  void operator()(const RmsNormForward& args) const { ops.rmsnorm_forward(stream, args); }
  void operator()(const RmsNormBackward& args) const { ops.rmsnorm_backward(stream, args); }
  void operator()(const Rope& args) const { ops.rope(stream, args); }
  void operator()(const ShortConvForward& args) const { ops.short_conv_forward(stream, args); }
  void operator()(const ShortConvBackward& args) const { ops.short_conv_backward(stream, args); }
  void operator()(const DeltaGatesForward& args) const { ops.delta_gates_forward(stream, args); }
  void operator()(const DeltaGatesBackward& args) const { ops.delta_gates_backward(stream, args); }
  void operator()(const DeltaRuleForward& args) const { ops.delta_rule_forward(stream, args); }
  void operator()(const DeltaRuleBackward& args) const { ops.delta_rule_backward(stream, args); }
  void operator()(const SsdGatesForward& args) const { ops.ssd_gates_forward(stream, args); }
  void operator()(const SsdGatesBackward& args) const { ops.ssd_gates_backward(stream, args); }
  void operator()(const SsdForward& args) const { ops.ssd_forward(stream, args); }
  void operator()(const SsdBackward& args) const { ops.ssd_backward(stream, args); }
  void operator()(const GatedNormForward& args) const { ops.gated_norm_forward(stream, args); }
  void operator()(const GatedNormBackward& args) const { ops.gated_norm_backward(stream, args); }
  void operator()(const MoveHeads& args) const { ops.move_heads(stream, args); }
  void operator()(const Dropout& args) const { ops.dropout(stream, args); }
  void operator()(const DoraFactors& args) const { ops.dora_factors(stream, args); }
  void operator()(const ScaleColumns& args) const { ops.scale_columns(stream, args); }
  void operator()(const GatedForward& args) const { ops.gated_forward(stream, args); }
  void operator()(const GatedBackward& args) const { ops.gated_backward(stream, args); }
  void operator()(const OutputGateForward& args) const { ops.output_gate_forward(stream, args); }
  void operator()(const OutputGateBackward& args) const { ops.output_gate_backward(stream, args); }
  void operator()(const ScaleAll& args) const { ops.scale_all(stream, args); }
  void operator()(const Route& args) const { ops.route(stream, args); }
  void operator()(const RouteBackward& args) const { ops.route_backward(stream, args); }
  void operator()(const SortByExpert& args) const { ops.sort_by_expert(stream, args); }
  void operator()(const GatherRows& args) const { ops.gather_rows(stream, args); }
  void operator()(const ExpertsForward& args) const { ops.experts_forward(stream, args); }
  void operator()(const ExpertsBackwardInput& args) const { ops.experts_backward_input(stream, args); }
  void operator()(const ExpertsBackwardWeight& args) const { ops.experts_backward_weight(stream, args); }
  void operator()(const ExpertsGated& args) const { ops.experts_gated(stream, args); }
  void operator()(const ExpertsGatedBackward& args) const { ops.experts_gated_backward(stream, args); }
  void operator()(const CombineRows& args) const { ops.combine_rows(stream, args); }
  void operator()(const CountExperts& args) const { ops.count_experts(stream, args); }
  void operator()(const CrossEntropy& args) const { ops.cross_entropy(stream, args); }
};

}  // namespace

void run_note(Ops& ops, Stream& stream, const OpNote& note) { std::visit(Caller{ops, stream}, note); }

}  // namespace megatrain
