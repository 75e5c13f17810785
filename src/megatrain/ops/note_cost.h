// What a noted call is, in words, and what it costs at least.
#pragma once

#include <string>

#include "megatrain/ops/op_note.h"

namespace megatrain {

// Equal for calls that take the same time: the op, its shapes, dtypes and strides, without addresses.
std::string note_text(const OpNote& note);

double note_flops(const OpNote& note);  // of the matrix products in it; 0 for the rest
double note_bytes(const OpNote& note);  // every operand read or written once

}  // namespace megatrain
