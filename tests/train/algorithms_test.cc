// The algorithm table: timed once, cached, and saved with a run.
#include "megatrain/train/algorithms.h"

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

class AlgorithmsTest : public testing::Test {
 protected:
  void SetUp() override { set_log_quiet(true); }
  void TearDown() override { set_log_quiet(false); }

  // A library that needs algorithms for a and b, and chooses `fresh` for those it does not know.
  AlgorithmTable tune(const AlgorithmCache& cache, const std::string& fresh) {
    return tune_with_cache(cache, [&](const AlgorithmTable& known) {
      AlgorithmTable chosen;
      for (const char* matmul : {"a", "b"}) {
        const auto found = known.find(matmul);
        if (found != known.end() && found->second == "damaged") fail_input("refused");
        chosen[matmul] = found == known.end() ? fresh : found->second;
      }
      return chosen;
    });
  }

  TemporaryDirectory directory_;
};

TEST_F(AlgorithmsTest, ASecondRunGetsTheFirstOnesChoice) {
  const AlgorithmCache cache(directory_ / "not/yet/there", "GPU 1, library 2");
  const AlgorithmTable first = tune(cache, "x");
  EXPECT_EQ(first, (AlgorithmTable{{"a", "x"}, {"b", "x"}}));
  EXPECT_EQ(tune(cache, "y"), first);
  EXPECT_EQ(tune(AlgorithmCache(directory_ / "not/yet/there", "GPU 1, library 2"), "z"), first);
}

TEST_F(AlgorithmsTest, AnotherLibraryIsTimedOnItsOwn) {
  const std::string place = directory_ / "cache";
  tune(AlgorithmCache(place, "library 2"), "x");
  EXPECT_EQ(tune(AlgorithmCache(place, "library 3"), "y").at("a"), "y");
  EXPECT_EQ(tune(AlgorithmCache(place, "library 2"), "y").at("a"), "x");
}

TEST_F(AlgorithmsTest, OnlyWhatIsMissingIsTimedAndTheRestStays) {
  const AlgorithmCache cache(directory_ / "cache", "library");
  cache.save({{"a", "x"}, {"of another shape", "w"}});
  EXPECT_EQ(tune(cache, "y"), (AlgorithmTable{{"a", "x"}, {"b", "y"}}));
  EXPECT_EQ(cache.load(), (AlgorithmTable{{"a", "x"}, {"b", "y"}, {"of another shape", "w"}}));
}

TEST_F(AlgorithmsTest, ADamagedFileIsTimedAgain) {
  const AlgorithmCache cache(directory_ / "cache", "library");
  cache.save({{"a", "damaged"}});
  EXPECT_EQ(tune(cache, "y").at("a"), "y");
  EXPECT_EQ(cache.load().at("a"), "y");
  write_bytes(cache.path(), "{");
  EXPECT_EQ(tune(cache, "z").at("a"), "z");
}

TEST_F(AlgorithmsTest, APlaceThatCannotBeWrittenDoesNotStopARun) {
  write_bytes(directory_ / "file", "");
  const AlgorithmCache cache(directory_ / "file/below", "library");
  EXPECT_EQ(tune(cache, "y").at("b"), "y");
}

}  // namespace
}  // namespace megatrain
