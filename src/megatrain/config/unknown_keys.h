// Messages about unknown keys, suggesting a similar one or naming the trainer that has it.
#pragma once

#include <string>

#include "megatrain/config/given_keys.h"

namespace megatrain {

// The message for all unknown keys of the file, which has at least one: "FILE:LINE: unknown key 'a'; …". If there are
// several, each has its line.
std::string unknown_sentence(const GivenKeys& given);

}  // namespace megatrain
