// The CPU's kernels: plain functions that run synchronously, on the calling thread and its team. Their bits do not
// depend on the team's size. Work is split into blocks that depend only on the shapes, every output element has one
// owner, and all sums have a fixed order.
#pragma once

#include "megatrain/host/thread_team.h"
#include "megatrain/ops/cpu/matmul.h"
#include "megatrain/ops/ops.h"

namespace megatrain::cpu {

struct Context {
  ThreadTeam& team;
  MatmulFunction matmul;
};

void embedding_forward(const Context& context, const EmbeddingForward& args);
void embedding_backward(const Context& context, const EmbeddingBackward& args);
void move_columns(const Context& context, const MoveColumns& args);
void rmsnorm_forward(const Context& context, const RmsNormForward& args);
void rmsnorm_backward(const Context& context, const RmsNormBackward& args);
void rope(const Context& context, const Rope& args);
void linear_forward(const Context& context, const LinearForward& args);
void linear_backward_input(const Context& context, const LinearBackwardInput& args);
void linear_backward_weight(const Context& context, const LinearBackwardWeight& args);
void attention_forward(const Context& context, const AttentionForward& args);
void attention_backward(const Context& context, const AttentionBackward& args);
void attention_cached(const Context& context, const CachedAttention& args);
void short_conv_forward(const Context& context, const ShortConvForward& args);
void short_conv_backward(const Context& context, const ShortConvBackward& args);
void short_conv_cached(const Context& context, const ShortConvCached& args);
void delta_gates_forward(const Context& context, const DeltaGatesForward& args);
void delta_gates_backward(const Context& context, const DeltaGatesBackward& args);
void delta_rule_forward(const Context& context, const DeltaRuleForward& args);
void delta_rule_backward(const Context& context, const DeltaRuleBackward& args);
void delta_rule_cached(const Context& context, const DeltaRuleCached& args);
void ssd_gates_forward(const Context& context, const SsdGatesForward& args);
void ssd_gates_backward(const Context& context, const SsdGatesBackward& args);
void ssd_forward(const Context& context, const SsdForward& args);
void ssd_backward(const Context& context, const SsdBackward& args);
void ssd_cached(const Context& context, const SsdCached& args);
void gated_norm_forward(const Context& context, const GatedNormForward& args);
void gated_norm_backward(const Context& context, const GatedNormBackward& args);
void move_heads(const Context& context, const MoveHeads& args);
void dropout(const Context& context, const Dropout& args);
void dora_factors(const Context& context, const DoraFactors& args);
void scale_columns(const Context& context, const ScaleColumns& args);
void output_gate_forward(const Context& context, const OutputGateForward& args);
void output_gate_backward(const Context& context, const OutputGateBackward& args);
void gated_forward(const Context& context, const GatedForward& args);
void gated_backward(const Context& context, const GatedBackward& args);
void scale_all(const Context& context, const ScaleAll& args);
void route(const Context& context, const Route& args);
void route_backward(const Context& context, const RouteBackward& args);
void scale_choices(const Context& context, const ScaleChoices& args);
void scale_choices_backward(const Context& context, const ScaleChoicesBackward& args);
void sort_by_expert(const Context& context, const SortByExpert& args);
void gather_rows(const Context& context, const GatherRows& args);
void experts_forward(const Context& context, const ExpertsForward& args);
void experts_backward_input(const Context& context, const ExpertsBackwardInput& args);
void experts_backward_weight(const Context& context, const ExpertsBackwardWeight& args);
void experts_gated(const Context& context, const ExpertsGated& args);
void experts_gated_backward(const Context& context, const ExpertsGatedBackward& args);
void combine_rows(const Context& context, const CombineRows& args);
void count_experts(const Context& context, const CountExperts& args);
void balance_slopes(const Context& context, const BalanceSlopes& args);
void cross_entropy(const Context& context, const CrossEntropy& args);
void cap_logits(const Context& context, const CapLogits& args);
void finish_gradient(const Context& context, const FinishGradient& args);
void sum_losses(const Context& context, const SumLosses& args);
void clip_factor(const Context& context, const ClipFactor& args);
void adamw(const Context& context, const AdamWUpdate& args);
void unpack_weights(const Context& context, const UnpackWeights& args);

}  // namespace megatrain::cpu
