// Keys of other trainers that choose methods which megatrain does not have, and keys that ask for nothing.
#pragma once

#include <string>

#include "megatrain/foreign/trainer.h"

namespace megatrain {

// A key that chooses such a method, or is a parameter of one.
bool is_method_key(const ForeignTrainer& trainer, const std::string& name);

// Throws Error(bad_config) with the methods that the keys ask for and what can be done instead.
void refuse_methods(const ForeignTrainer& trainer, const ForeignKeys& given);

[[noreturn]] void refuse_method(const std::string& name, const Foreign& value, const std::string& method,
                                const std::string& instead);

// Why a key that switches a method on, or is a parameter of one, asks for nothing where refuse_methods accepts it;
// empty for other keys.
std::string method_note(const ForeignTrainer& trainer, const std::string& name);

// nullptr: it is none.
const ForeignIdle* find_idle(const ForeignTrainer& trainer, const std::string& name);

// Why the key asks for nothing. Throws Error(bad_config) where its value does ask for something.
std::string idle_note(const ForeignIdle& idle, const std::string& name, const Foreign& value);

}  // namespace megatrain
