#include "megatrain/io/user_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace megatrain {
namespace {

// Sets an environment variable while the object lives; nullptr: unset.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) const { value ? setenv(name_, value, 1) : unsetenv(name_); }

  const char* name_;
  std::optional<std::string> before_;
};

TEST(UserCache, LiesWhereXdgSaysAndElseAtHome) {
  const Variable home("HOME", "/somewhere/else");
  {
    const Variable caches("XDG_CACHE_HOME", "/caches");
    EXPECT_EQ(user_cache_directory(), "/caches/megatrain");
  }
  for (const char* not_counted : {static_cast<const char*>(nullptr), "", "caches"}) {
    const Variable caches("XDG_CACHE_HOME", not_counted);
    EXPECT_EQ(user_cache_directory(), "/somewhere/else/.cache/megatrain");
  }
}

TEST(UserCache, IsFoundWithoutAnyVariable) {
  const Variable home("HOME", nullptr), caches("XDG_CACHE_HOME", nullptr);
  EXPECT_TRUE(user_cache_directory().ends_with("/.cache/megatrain"));
  EXPECT_EQ(user_cache_directory().front(), '/');
}

}  // namespace
}  // namespace megatrain
