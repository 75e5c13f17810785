// A note of one op call: its args, whose addresses may be fake.
#pragma once

#include <variant>
#include <vector>

#include "megatrain/ops/attention.h"
#include "megatrain/ops/cross_entropy.h"
#include "megatrain/ops/dora.h"
#include "megatrain/ops/dropout.h"
#include "megatrain/ops/elementwise.h"
#include "megatrain/ops/experts.h"
#include "megatrain/ops/linear.h"
#include "megatrain/ops/rmsnorm.h"
#include "megatrain/ops/rope.h"

namespace megatrain {

using OpNote = std::variant<LinearForward, LinearBackwardInput, LinearBackwardWeight, AttentionForward,
                            AttentionBackward, RmsNormForward, RmsNormBackward, Rope, GatedForward, GatedBackward,
                            Route, RouteBackward, SortByExpert, GatherRows, ExpertsForward, ExpertsBackwardInput,
                            ExpertsBackwardWeight, ExpertsGated, ExpertsGatedBackward, CombineRows, CountExperts,
                            CrossEntropy, Dropout, DoraFactors, ScaleColumns, ScaleAll>;

// Whether a backward pass makes this call only to recompute its inner activations. A descending CombineRows is the
// backward's own. Its gather of gradient rows looks like one of activations, so it is counted as recomputation.
inline bool is_forward_call(const OpNote& note) {
  const auto* rope = std::get_if<Rope>(&note);
  const auto* combine = std::get_if<CombineRows>(&note);
  return std::holds_alternative<LinearForward>(note) || std::holds_alternative<AttentionForward>(note) ||
         std::holds_alternative<RmsNormForward>(note) || std::holds_alternative<GatedForward>(note) ||
         std::holds_alternative<Route>(note) || std::holds_alternative<SortByExpert>(note) ||
         std::holds_alternative<GatherRows>(note) || std::holds_alternative<ExpertsForward>(note) ||
         std::holds_alternative<ExpertsGated>(note) || (rope && !rope->backward) || (combine && !combine->descending);
}

}  // namespace megatrain
