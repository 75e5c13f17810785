// A text for a noted call, and a lower bound of its cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/ops/op_note.h"

namespace megatrain {

// Equal for calls that take the same time: the op, its shapes, dtypes and strides, without addresses.
std::string note_text(const OpNote& note);

// FLOPs of its matmuls, including those of attention; 0 for other ops, whose time depends on their bytes. The ops with
// FLOPs do nearly all of a step's arithmetic.
double note_flops(const OpNote& note);
double note_bytes(const OpNote& note);  // every operand is read or written once

// FLOPs of the matmuls within the chunks of a recurrence: the gated delta rule and Mamba 2. 0 for other ops. They are
// apart from note_flops(), because such small matmuls run far below the rate of a layer's.
double recurrence_flops(const OpNote& note);

// The number of experts of a call over rows of experts; empty for other calls.
std::optional<int64_t> expert_count(const OpNote& note);

// The tokens of the longest document of an attention call; empty for other calls.
std::optional<int64_t> attention_length(const OpNote& note);

}  // namespace megatrain
