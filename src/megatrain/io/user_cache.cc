#include "megatrain/io/user_cache.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace megatrain {

namespace {

// A variable that names a folder: relative paths do not count, as the XDG specification has it.
std::string folder_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value && value[0] == '/' ? value : "";
}

std::string home() {
  if (const std::string folder = folder_of("HOME"); !folder.empty()) return folder;
  const passwd* user = getpwuid(getuid());
  return user && user->pw_dir ? user->pw_dir : ".";
}

}  // namespace

std::string user_cache_directory() {
  const std::string caches = folder_of("XDG_CACHE_HOME");
  return (caches.empty() ? home() + "/.cache" : caches) + "/megatrain";
}

}  // namespace megatrain
