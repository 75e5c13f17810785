// One call of an op, written down: its args, whose addresses may be made up.
#pragma once

#include <variant>
#include <vector>

#include "megatrain/ops/attention.h"
#include "megatrain/ops/cross_entropy.h"
#include "megatrain/ops/elementwise.h"
#include "megatrain/ops/linear.h"
#include "megatrain/ops/rmsnorm.h"
#include "megatrain/ops/rope.h"

namespace megatrain {

using OpNote =
    std::variant<LinearForward, LinearBackwardInput, LinearBackwardWeight, AttentionForward, AttentionBackward,
                 RmsNormForward, RmsNormBackward, Rope, GatedForward, GatedBackward, CrossEntropy>;

// A matrix product or attention: what a library computes, and nearly all of a step's arithmetic.
inline bool is_library_call(const OpNote& note) {
  const auto* weight = std::get_if<LinearBackwardWeight>(&note);
  return std::holds_alternative<LinearForward>(note) || std::holds_alternative<LinearBackwardInput>(note) ||
         (weight && !weight->grad_weight.empty()) || std::holds_alternative<AttentionForward>(note) ||
         std::holds_alternative<AttentionBackward>(note);
}

// What a backward pass calls only to have its inner activations again.
inline bool is_forward_call(const OpNote& note) {
  return std::holds_alternative<LinearForward>(note) || std::holds_alternative<AttentionForward>(note) ||
         std::holds_alternative<RmsNormForward>(note) || std::holds_alternative<GatedForward>(note) ||
         (std::holds_alternative<Rope>(note) && !std::get<Rope>(note).backward);
}

}  // namespace megatrain
