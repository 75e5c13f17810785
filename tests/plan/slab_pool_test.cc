#include "megatrain/plan/slab_pool.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace megatrain {

TEST(SlabPool, HandsOutEverySlabOnceInOrder) {
  SlabPool pool(3);
  std::vector<Lease> leases;
  for (int64_t slab = 0; slab < 3; ++slab) {
    EXPECT_FALSE(pool.empty());
    leases.push_back(pool.acquire());
    EXPECT_TRUE(leases.back().held());
    EXPECT_EQ(leases.back().slab(), slab);
  }
  EXPECT_TRUE(pool.empty());
}

TEST(SlabPool, RefusesALeaseWhenNoneIsFree) {
  SlabPool pool(1);
  const Lease held = pool.acquire();
  EXPECT_THROW(pool.acquire(), Error);
}

TEST(SlabPool, SlabsComeBackInTheOrderTheyWereDropped) {
  SlabPool pool(3);
  std::optional<Lease> a(pool.acquire()), b(pool.acquire()), c(pool.acquire());
  b.reset();
  c.reset();
  a.reset();
  const Lease first = pool.acquire(), second = pool.acquire(), third = pool.acquire();
  EXPECT_EQ(first.slab(), 1);
  EXPECT_EQ(second.slab(), 2);
  EXPECT_EQ(third.slab(), 0);
}

TEST(SlabPool, AFreshSlabGoesBeforeOneThatWasDropped) {
  SlabPool pool(2);
  { const Lease dropped = pool.acquire(); }
  EXPECT_EQ(pool.acquire().slab(), 1);
}

TEST(SlabPool, AMovedLeaseReturnsItsSlabOnce) {
  SlabPool pool(1);
  {
    Lease lease = pool.acquire();
    const Lease moved = std::move(lease);
    EXPECT_FALSE(lease.held());
    EXPECT_TRUE(moved.held());
    EXPECT_TRUE(pool.empty());
  }
  const Lease repeated = pool.acquire();
  EXPECT_TRUE(pool.empty());
}

TEST(SlabPool, ANewLeaseInPlaceOfAnOldOneReturnsTheOldOnesSlab) {
  SlabPool pool(2);
  Lease lease = pool.acquire();
  lease = pool.acquire();
  EXPECT_EQ(lease.slab(), 1);
  ASSERT_FALSE(pool.empty());
  EXPECT_EQ(pool.acquire().slab(), 0);
}

}  // namespace megatrain
