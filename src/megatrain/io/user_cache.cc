#include "megatrain/io/user_cache.h"

#include <pwd.h>
#include <unistd.h>

namespace megatrain {

std::string user_cache_directory() {
  const passwd* user = getpwuid(getuid());
  return std::string(user && user->pw_dir ? user->pw_dir : ".") + "/.cache/megatrain";
}

}  // namespace megatrain
