#include "megatrain/io/user_cache.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace megatrain {

namespace {

// The folder that a variable names. Relative paths are ignored, as the XDG specification demands.
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
