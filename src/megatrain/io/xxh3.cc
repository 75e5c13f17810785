#include "megatrain/io/xxh3.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

std::string text_of(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

}  // namespace

struct Xxh3::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {
  ensure(state_->xxh != nullptr, "a hash state can be allocated");
  reset();
}
Xxh3::~Xxh3() = default;
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;

void Xxh3::reset() { XXH3_128bits_reset(state_->xxh); }

void Xxh3::update(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_128bits_update(state_->xxh, data, bytes);
}

std::string Xxh3::digest() const { return text_of(XXH3_128bits_digest(state_->xxh)); }

std::string xxh3_128(const void* data, size_t bytes) { return text_of(XXH3_128bits(data, bytes)); }

uint64_t xxh3_64(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

}  // namespace megatrain
