// Keys of LLaMA-Factory and the Hugging Face trainer that ask for nothing here.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/foreign_values.h"

namespace megatrain {

bool is_idle_key(const std::string& name);

// Why the key asks for nothing. Throws Error(bad_config) where its value does ask for something.
std::string idle_note(const std::string& name, const Foreign& value);

std::vector<std::string> idle_keys();

}  // namespace megatrain
