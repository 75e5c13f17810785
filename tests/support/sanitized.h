// Whether the tests run under a sanitizer, which makes every step many times slower.
#pragma once

namespace megatrain {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace megatrain
