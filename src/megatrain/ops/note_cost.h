// What a noted call is, in words, and what it costs at least.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/ops/op_note.h"

namespace megatrain {

// Equal for calls that take the same time: the op, its shapes, dtypes and strides, without addresses.
std::string note_text(const OpNote& note);

// Of the matrix products in it, attention's included; 0 for the rest, whose time goes by their bytes. The calls that
// have some are nearly all of a step's arithmetic.
double note_flops(const OpNote& note);
double note_bytes(const OpNote& note);  // every operand read or written once

// Of a call over rows of experts, how many these are; nothing for the rest.
std::optional<int64_t> expert_count(const OpNote& note);

// Of attention, the tokens of the longest document; nothing for the rest.
std::optional<int64_t> attention_length(const OpNote& note);

}  // namespace megatrain
