// An Ops that computes nothing and records the calls that a model's phases make. Whatever needs to know the matmuls of
// a step (the algorithm table, `bench floor`, `bench ops`) runs the phases on this.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "megatrain/ops/op_note.h"
#include "megatrain/ops/ops.h"

namespace megatrain {

class OpNotes final : public Ops {
 public:
  // The calls since the last take(), in order.
  std::vector<OpNote> take() { return std::exchange(notes_, {}); }

  std::string library() const override { return "notes"; }
  int64_t scratch_bytes(const OpsShape&) override { return 0; }
  void reserve(const OpsShape&) override {}

  void rmsnorm_forward(Stream&, const RmsNormForward& args) override { notes_.emplace_back(args); }
  void rmsnorm_backward(Stream&, const RmsNormBackward& args) override { notes_.emplace_back(args); }
  void rope(Stream&, const Rope& args) override { notes_.emplace_back(args); }
  void linear_forward(Stream&, const LinearForward& args) override { notes_.emplace_back(args); }
  void linear_backward_input(Stream&, const LinearBackwardInput& args) override { notes_.emplace_back(args); }
  void linear_backward_weight(Stream&, const LinearBackwardWeight& args) override { notes_.emplace_back(args); }
  void attention_forward(Stream&, const AttentionForward& args) override { notes_.emplace_back(args); }
  void attention_backward(Stream&, const AttentionBackward& args) override { notes_.emplace_back(args); }
  void short_conv_forward(Stream&, const ShortConvForward& args) override { notes_.emplace_back(args); }
  void short_conv_backward(Stream&, const ShortConvBackward& args) override { notes_.emplace_back(args); }
  void delta_gates_forward(Stream&, const DeltaGatesForward& args) override { notes_.emplace_back(args); }
  void delta_gates_backward(Stream&, const DeltaGatesBackward& args) override { notes_.emplace_back(args); }
  void delta_rule_forward(Stream&, const DeltaRuleForward& args) override { notes_.emplace_back(args); }
  void delta_rule_backward(Stream&, const DeltaRuleBackward& args) override { notes_.emplace_back(args); }
  void ssd_gates_forward(Stream&, const SsdGatesForward& args) override { notes_.emplace_back(args); }
  void ssd_gates_backward(Stream&, const SsdGatesBackward& args) override { notes_.emplace_back(args); }
  void ssd_forward(Stream&, const SsdForward& args) override { notes_.emplace_back(args); }
  void ssd_backward(Stream&, const SsdBackward& args) override { notes_.emplace_back(args); }
  void gated_norm_forward(Stream&, const GatedNormForward& args) override { notes_.emplace_back(args); }
  void gated_norm_backward(Stream&, const GatedNormBackward& args) override { notes_.emplace_back(args); }
  void move_heads(Stream&, const MoveHeads& args) override { notes_.emplace_back(args); }
  void dropout(Stream&, const Dropout& args) override { notes_.emplace_back(args); }
  void dora_factors(Stream&, const DoraFactors& args) override { notes_.emplace_back(args); }
  void scale_columns(Stream&, const ScaleColumns& args) override { notes_.emplace_back(args); }
  void gated_forward(Stream&, const GatedForward& args) override { notes_.emplace_back(args); }
  void gated_backward(Stream&, const GatedBackward& args) override { notes_.emplace_back(args); }
  void output_gate_forward(Stream&, const OutputGateForward& args) override { notes_.emplace_back(args); }
  void output_gate_backward(Stream&, const OutputGateBackward& args) override { notes_.emplace_back(args); }
  void scale_all(Stream&, const ScaleAll& args) override { notes_.emplace_back(args); }
  void route(Stream&, const Route& args) override { notes_.emplace_back(args); }
  void route_backward(Stream&, const RouteBackward& args) override { notes_.emplace_back(args); }
  void sort_by_expert(Stream&, const SortByExpert& args) override { notes_.emplace_back(args); }
  void gather_rows(Stream&, const GatherRows& args) override { notes_.emplace_back(args); }
  void experts_forward(Stream&, const ExpertsForward& args) override { notes_.emplace_back(args); }
  void experts_backward_input(Stream&, const ExpertsBackwardInput& args) override { notes_.emplace_back(args); }
  void experts_backward_weight(Stream&, const ExpertsBackwardWeight& args) override { notes_.emplace_back(args); }
  void experts_gated(Stream&, const ExpertsGated& args) override { notes_.emplace_back(args); }
  void experts_gated_backward(Stream&, const ExpertsGatedBackward& args) override { notes_.emplace_back(args); }
  void combine_rows(Stream&, const CombineRows& args) override { notes_.emplace_back(args); }
  void count_experts(Stream&, const CountExperts& args) override { notes_.emplace_back(args); }
  void cross_entropy(Stream&, const CrossEntropy& args) override { notes_.emplace_back(args); }

  // What multiplies nothing or next to nothing, and what the phases of a training step do not call.
  void attention_cached(Stream&, const CachedAttention&) override {}
  void short_conv_cached(Stream&, const ShortConvCached&) override {}
  void delta_rule_cached(Stream&, const DeltaRuleCached&) override {}
  void ssd_cached(Stream&, const SsdCached&) override {}
  void embedding_forward(Stream&, const EmbeddingForward&) override {}
  void embedding_backward(Stream&, const EmbeddingBackward&) override {}
  void move_columns(Stream&, const MoveColumns&) override {}
  void cap_logits(Stream&, const CapLogits&) override {}
  void scale_choices(Stream&, const ScaleChoices&) override {}
  void scale_choices_backward(Stream&, const ScaleChoicesBackward&) override {}
  void balance_slopes(Stream&, const BalanceSlopes&) override {}
  void finish_gradient(Stream&, const FinishGradient&) override {}
  void sum_losses(Stream&, const SumLosses&) override {}
  void clip_factor(Stream&, const ClipFactor&) override {}
  void unpack_weights(Stream&, const UnpackWeights&) override {}
  void adamw(Stream&, const AdamWUpdate&) override {}

 private:
  std::vector<OpNote> notes_;
};

// Makes the noted call. Every address in the note must be real.
void run_note(Ops& ops, Stream& stream, const OpNote& note);

}  // namespace megatrain
