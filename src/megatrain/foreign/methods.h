// Keys of other trainers that select methods megatrain does not have, and keys that have no effect here.
#pragma once

#include <string>

#include "megatrain/foreign/trainer.h"

namespace megatrain {

// Whether the key selects such a method, or is a parameter of one.
bool is_method_key(const ForeignTrainer& trainer, const std::string& name);

// Throws Error(bad_config) with the methods that the keys request and what to do instead.
void refuse_methods(const ForeignTrainer& trainer, const ForeignKeys& given);

[[noreturn]] void refuse_method(const std::string& name, const Foreign& value, const std::string& method,
                                const std::string& instead);

// For a key that enables a method or is a parameter of one, and that refuse_methods accepts: why it has no effect.
// Empty for other keys.
std::string method_note(const ForeignTrainer& trainer, const std::string& name);

// nullptr if the key is not one without effect.
const ForeignIdle* find_idle(const ForeignTrainer& trainer, const std::string& name);

// Why the key has no effect. Throws Error(bad_config) when its value would have one.
std::string idle_note(const ForeignIdle& idle, const std::string& name, const Foreign& value);

}  // namespace megatrain
