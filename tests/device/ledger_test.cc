#include "megatrain/device/ledger.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

TEST(Ledger, KnowsWhoHoldsWhatAndThePeak) {
  Ledger ledger;
  ledger.add("weights", 100);
  ledger.add("slots", 30);
  ledger.add("weights", 50);
  EXPECT_EQ(ledger.bytes(), 180);
  ledger.remove("weights", 100);
  ledger.remove("slots", 30);
  ledger.add("slots", 10);
  EXPECT_EQ(ledger.bytes(), 60);
  EXPECT_EQ(ledger.peak_bytes(), 180);
  EXPECT_EQ(ledger.allocations(), 4);
  EXPECT_EQ(ledger.by_tag(), (std::map<std::string, int64_t>{{"weights", 50}, {"slots", 10}}));
}

TEST(Ledger, ATagThatHoldsNothingIsGone) {
  Ledger ledger;
  ledger.add("scratch", 8);
  ledger.add("empty", 0);
  ledger.remove("scratch", 8);
  ledger.remove("empty", 0);
  EXPECT_TRUE(ledger.by_tag().empty());
  EXPECT_EQ(ledger.table(), "");
}

TEST(Ledger, RefusesToGiveBackWhatATagDoesNotHold) {
  Ledger ledger;
  ledger.add("weights", 100);
  EXPECT_THROW(ledger.remove("weights", 101), Error);
  EXPECT_THROW(ledger.remove("slots", 1), Error);
  EXPECT_THROW(ledger.remove("weights", -1), Error);
  EXPECT_THROW(ledger.add("weights", -1), Error);
  EXPECT_EQ(ledger.bytes(), 100);
}

TEST(Ledger, TheTableHasTheLargestHolderFirst) {
  Ledger ledger;
  ledger.add("b", 512);
  ledger.add("activations", int64_t{3} << 30);
  ledger.add("weights", int64_t{1536} << 30);
  EXPECT_EQ(ledger.table(),
            "weights       1.50 TiB\n"
            "activations   3.00 GiB\n"
            "b                512 B\n");
}

TEST(Ledger, CountsRightFromSeveralThreads) {
  Ledger ledger;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        ledger.add("a", 3);
        ledger.add("b", 5);
        ledger.remove("a", 3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.bytes(), 4 * 1000 * 5);
  EXPECT_EQ(ledger.allocations(), 8000);
}

}  // namespace
}  // namespace megatrain
