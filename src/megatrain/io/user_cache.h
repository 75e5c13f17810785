// Where this user's caches are: files that can be recreated at any time.
#pragma once

#include <string>

namespace megatrain {

// ${XDG_CACHE_HOME:-$HOME/.cache}/megatrain; it need not exist.
std::string user_cache_directory();

}  // namespace megatrain
