// A note of one op call: its args, whose addresses may be fake.
#pragma once

#include <variant>
#include <vector>

#include "megatrain/ops/attention.h"
#include "megatrain/ops/cross_entropy.h"
#include "megatrain/ops/delta_gates.h"
#include "megatrain/ops/delta_rule.h"
#include "megatrain/ops/dora.h"
#include "megatrain/ops/dropout.h"
#include "megatrain/ops/elementwise.h"
#include "megatrain/ops/experts.h"
#include "megatrain/ops/gated_norm.h"
#include "megatrain/ops/heads.h"
#include "megatrain/ops/linear.h"
#include "megatrain/ops/output_gate.h"
#include "megatrain/ops/rmsnorm.h"
#include "megatrain/ops/rope.h"
#include "megatrain/ops/short_conv.h"
#include "megatrain/ops/ssd.h"
#include "megatrain/ops/ssd_gates.h"

namespace megatrain {

using OpNote =
    std::variant<LinearForward, LinearBackwardInput, LinearBackwardWeight, AttentionForward, AttentionBackward,
                 RmsNormForward, RmsNormBackward, Rope, GatedForward, GatedBackward, Route, RouteBackward, SortByExpert,
                 GatherRows, ExpertsForward, ExpertsBackwardInput, ExpertsBackwardWeight, ExpertsGated,
                 ExpertsGatedBackward, CombineRows, CountExperts, CrossEntropy, Dropout, DoraFactors, ScaleColumns,
                 ScaleAll, OutputGateForward, OutputGateBackward, ShortConvForward, ShortConvBackward,
                 DeltaGatesForward, DeltaGatesBackward, DeltaRuleForward, DeltaRuleBackward, SsdGatesForward,
                 SsdGatesBackward, SsdForward, SsdBackward, GatedNormForward, GatedNormBackward, MoveHeads>;

// Whether a backward pass makes this call only to recompute its inner activations. A descending CombineRows is the
// backward's own. Its gather of gradient rows looks like one of activations, so it is counted as recomputation.
inline bool is_forward_call(const OpNote& note) {
  const auto* rope = std::get_if<Rope>(&note);
  const auto* combine = std::get_if<CombineRows>(&note);
  const auto* heads = std::get_if<MoveHeads>(&note);
  return std::holds_alternative<LinearForward>(note) || std::holds_alternative<AttentionForward>(note) ||
         std::holds_alternative<RmsNormForward>(note) || std::holds_alternative<GatedForward>(note) ||
         std::holds_alternative<OutputGateForward>(note) || std::holds_alternative<Route>(note) ||
         std::holds_alternative<SortByExpert>(note) || std::holds_alternative<GatherRows>(note) ||
         std::holds_alternative<ExpertsForward>(note) || std::holds_alternative<ExpertsGated>(note) ||
         std::holds_alternative<ShortConvForward>(note) || std::holds_alternative<DeltaGatesForward>(note) ||
         std::holds_alternative<SsdGatesForward>(note) || std::holds_alternative<SsdForward>(note) ||
         std::holds_alternative<DeltaRuleForward>(note) || std::holds_alternative<GatedNormForward>(note) ||
         (rope && !rope->backward) || (heads && !heads->backward) || (combine && !combine->descending);
}

}  // namespace megatrain
