// Device memory lent by its owner for a while, with allocations if that is not enough.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "megatrain/base/math.h"
#include "megatrain/device/device.h"

namespace megatrain {

class LentMemory {
 public:
  LentMemory(Device& device, std::span<std::byte> lent) : device_(device), left_(lent) {}

  // How much lent memory a piece takes. Pieces are aligned like allocations, because kernels may be chosen by
  // alignment.
  static int64_t piece_bytes(int64_t bytes) { return round_up(bytes, 256); }

  // Lent memory if the whole piece fits, otherwise an allocation. The lender's memory must outlive the buffer.
  Buffer take(int64_t bytes, const std::string& tag) {
    const size_t piece = static_cast<size_t>(piece_bytes(bytes));
    if (piece > left_.size()) return device_.allocate(static_cast<size_t>(bytes), tag);
    std::byte* at = left_.data();
    left_ = left_.subspan(piece);
    return {at, static_cast<size_t>(bytes), [](void*, size_t) {}};
  }

  std::span<std::byte> left() const { return left_; }

 private:
  Device& device_;
  std::span<std::byte> left_;
};

}  // namespace megatrain
