// A pool of equal slabs handed out as leases, used while the schedule is built. A lease holds a slab from the action
// that fills it to the last one that reads it; dropping the lease makes the slab available again. Slabs are reused in
// the order in which they were dropped, so the next user gets the one whose fences are oldest.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "megatrain/base/error.h"

namespace megatrain {

class SlabPool;

class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), slab_(other.slab_) {}
  Lease& operator=(Lease&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(slab_, other.slab_);
    return *this;
  }
  ~Lease();

  bool held() const { return pool_ != nullptr; }
  int64_t slab() const { return slab_; }

 private:
  friend class SlabPool;
  Lease(SlabPool* pool, int64_t slab) : pool_(pool), slab_(slab) {}
  SlabPool* pool_ = nullptr;
  int64_t slab_ = -1;
};

class SlabPool {
 public:
  explicit SlabPool(int64_t slabs) {
    for (int64_t slab = 0; slab < slabs; ++slab) free_.push_back(slab);
  }
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  bool empty() const { return free_.empty(); }
  Lease acquire() {
    ensure(!free_.empty(), "a slab is leased only when one is free");
    const int64_t slab = free_.front();
    free_.pop_front();
    return {this, slab};
  }

 private:
  friend class Lease;
  std::deque<int64_t> free_;
};

inline Lease::~Lease() {
  if (pool_) pool_->free_.push_back(slab_);
}

}  // namespace megatrain
