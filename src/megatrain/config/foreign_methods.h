// Methods of LLaMA-Factory that megatrain does not have, such as LoRA, DPO and models that see.
#pragma once

#include <string>

#include "megatrain/config/foreign_values.h"

namespace megatrain {

// A key that chooses such a method, or is a parameter of one.
bool is_method_key(const std::string& name);

// Throws Error(bad_config) with the method that the keys ask for and what can be done instead.
void refuse_methods(const ForeignKeys& given);

// Why a key of is_method_key asks for nothing, where refuse_methods accepts it.
std::string method_note(const std::string& name);

}  // namespace megatrain
