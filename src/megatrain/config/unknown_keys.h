// What is said of keys that are not known: a near one, or whose they are.
#pragma once

#include <string>

#include "megatrain/config/given_keys.h"

namespace megatrain {

// All unknown keys of the file, which has at least one: "FILE:LINE: unknown key 'a'; …", of several with their lines.
std::string unknown_sentence(const GivenKeys& given);

}  // namespace megatrain
