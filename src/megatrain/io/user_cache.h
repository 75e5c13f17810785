// Where this user's caches lie: what can be made again at any time.
#pragma once

#include <string>

namespace megatrain {

std::string user_cache_directory();  // ~/.cache/megatrain; it need not exist

}  // namespace megatrain
