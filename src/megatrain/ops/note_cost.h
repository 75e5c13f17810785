// What a noted call is, in words, and what it costs at least.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatrain/ops/op_note.h"

namespace megatrain {

// Equal for calls that take the same time: the op, its shapes, dtypes and strides, without addresses.
std::string note_text(const OpNote& note);

double note_flops(const OpNote& note);  // of the matrix products in it; 0 for the rest
double note_bytes(const OpNote& note);  // every operand read or written once

// Of attention, the tokens of the longest document; nothing for the rest.
std::optional<int64_t> attention_length(const OpNote& note);

}  // namespace megatrain
