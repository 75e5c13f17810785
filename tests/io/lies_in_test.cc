#include "megatrain/io/lies_in.h"

#include <gtest/gtest.h>

namespace megatrain {
namespace {

TEST(LiesIn, AFolderHoldsItselfAndWhatIsBelow) {
  for (const char* outer : {"/a/run", "/a/run/"}) {
    for (const char* inner : {"/a/run", "/a/run/", "/a/run/model", "/a/run/b/c"})
      EXPECT_TRUE(lies_in(inner, outer)) << inner << " in " << outer;
    for (const char* inner : {"/a", "/a/", "/", "", "/a/run.1", "/a/ru", "/b/run/model", "run"})
      EXPECT_FALSE(lies_in(inner, outer)) << inner << " in " << outer;
  }
  EXPECT_TRUE(lies_in("/a", "/"));
  EXPECT_FALSE(lies_in("/a", ""));
}

}  // namespace
}  // namespace megatrain
