// Hashes: xxh3_128 for files, states and caches, xxh3_64 for bytes that only this process compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace megatrain {

// xxh3_128 fed in pieces. The text is 32 hexadecimal digits, high half first.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;
  void reset();
  void update(const void* data, size_t bytes);
  std::string digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string xxh3_128(const void* data, size_t bytes);
uint64_t xxh3_64(const void* data, size_t bytes);

}  // namespace megatrain
